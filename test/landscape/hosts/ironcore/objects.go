// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
)

const (
	apiVersion = "metal.ironcore.dev/v1alpha1"

	kindServer            = "Server"
	kindServerClaim       = "ServerClaim"
	kindBootConfiguration = "ServerBootConfiguration"
	kindBMCSecret         = "BMCSecret"

	// providerScheme begins the provider ids of machines.
	providerScheme = "ironcore-metal://"
	// labelListed is the label of Pods by which provider-local lists its machines.
	labelListed = "machine-provider"

	// secretName is the name of the BMCSecret of all BMCs. The mock does not ask who is there.
	secretName   = "landscape"
	secretName64 = "bGFuZHNjYXBl"

	// annotationOperation with operationIgnore keeps metal-operator from a Server.
	annotationOperation = "metal.ironcore.dev/operation"

	// annotationUnlisted on a Pod is since when provider-local does not list it.
	annotationUnlisted = "landscape.machine-preservation/unlisted"

	// AnnotationLasting on a Server with any value has it stay when its machine goes, for others.
	AnnotationLasting = "landscape.machine-preservation/lasting"

	// The only system of the mock.
	systemUUID = "38947555-7742-3448-3784-823347823834"
	systemURI  = "/redfish/v1/Systems/437XR1138R2"
)

var operationIgnore = map[string]string{
	hosts.IronCore03: "ignore-reconciliation",
	hosts.IronCore07: "ignore",
}

func newObject(kind string, key client.ObjectKey) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	return object
}

// NewServer returns the Server of a machine with a name only. Servers have no namespace, so it is part of the name.
func NewServer(machine client.ObjectKey) *unstructured.Unstructured {
	return newObject(kindServer, client.ObjectKey{Name: machine.Namespace + "." + machine.Name})
}

// NewServerClaim returns the ServerClaim of a machine with a name only.
func NewServerClaim(machine client.ObjectKey) *unstructured.Unstructured {
	return newObject(kindServerClaim, machine)
}

// NewSpare returns a Server that no machine gets, and that stays. Nobody acts on it.
func NewSpare(kind, name string) *unstructured.Unstructured {
	server := NewServer(client.ObjectKey{Namespace: "spare", Name: name})
	server.SetAnnotations(map[string]string{annotationOperation: operationIgnore[kind], AnnotationLasting: "true"})
	server.Object["spec"] = map[string]any{"systemUUID": systemUUID}
	return server
}

// machineOf returns the machine that has a Server, or the one that it was made for.
func machineOf(server client.Object) (client.ObjectKey, bool) {
	if u, ok := server.(*unstructured.Unstructured); ok {
		namespace, _, _ := unstructured.NestedString(u.Object, "spec", "serverClaimRef", "namespace")
		name, claimed, _ := unstructured.NestedString(u.Object, "spec", "serverClaimRef", "name")
		if claimed {
			return client.ObjectKey{Namespace: namespace, Name: name}, true
		}
	}
	namespace, name, ok := strings.Cut(server.GetName(), ".")
	return client.ObjectKey{Namespace: namespace, Name: name}, ok
}

// serverOf returns the name of the Server that a claim is for, or bound to, empty for none.
func serverOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "serverRef", "name")
	return name
}

// specifyClaim makes a ServerClaim what machine-controller-manager's provider makes it: for a Server, or for any.
func specifyClaim(claim *unstructured.Unstructured, server string) {
	spec := map[string]any{"power": "On", "image": "landscape"}
	if server != "" {
		spec["serverRef"] = map[string]any{"name": server}
	}
	claim.Object["spec"] = spec
}

// specifyServer makes the Server one that the claim has, and whose BMC is reached at the port. What v0.7 does not know of the
// reference to the claim does not come there.
func specifyServer(server, claim *unstructured.Unstructured, ignore string, port int) {
	server.SetAnnotations(map[string]string{annotationOperation: ignore})
	server.Object["spec"] = map[string]any{
		"systemUUID": systemUUID,
		"systemURI":  systemURI,
		"power":      "On",
		"serverClaimRef": map[string]any{
			"apiVersion": apiVersion,
			"kind":       kindServerClaim,
			"namespace":  claim.GetNamespace(),
			"name":       claim.GetName(),
			"uid":        string(claim.GetUID()),
		},
		"bmc": map[string]any{
			"address":      loopback,
			"protocol":     map[string]any{"name": "Redfish", "scheme": "http", "port": int64(port)},
			"bmcSecretRef": map[string]any{"name": secretName},
		},
	}
}
