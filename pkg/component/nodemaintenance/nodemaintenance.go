// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package nodemaintenance deploys the API of NodeMaintenances into a shoot, with the limits that the Shoot sets. The API stays
// when node maintenance is disabled, because its objects belong to the shoot owner.
package nodemaintenance

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
)

const (
	// ManagedResourceName is the name of the ManagedResource with the API.
	ManagedResourceName = "extension-machine-preservation-node-maintenance"
	// LabelDefinition on a CustomResourceDefinition in the shoot says that it is ours. It stays when the feature is disabled.
	LabelDefinition = v1alpha1.GroupName + "/node-maintenance"
)

//go:embed crds/*.yaml
var files embed.FS

// definitions are the CustomResourceDefinitions, with our label.
var definitions = read()

func read() []*apiextensionsv1.CustomResourceDefinition {
	names, err := fs.Glob(files, "crds/*.yaml")
	utilruntime.Must(err)
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		content, err := files.ReadFile(name)
		utilruntime.Must(err)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		utilruntime.Must(yaml.UnmarshalStrict(content, definition))
		metav1.SetMetaDataLabel(&definition.ObjectMeta, LabelDefinition, "true")
		all = append(all, definition)
	}
	return all
}

// DefinitionNames returns the names of the CustomResourceDefinitions.
func DefinitionNames() []string {
	var names []string
	for _, definition := range definitions {
		names = append(names, definition.Name)
	}
	return names
}

// Resources are what has the API. Without them, everything stays in the shoot as it is.
func Resources(c client.Client, namespace string) shootresources.Resources {
	return shootresources.Resources{Client: c, Namespace: namespace, Name: ManagedResourceName, KeepObjects: true}
}

// Deploy deploys the API for the control plane of a shoot. The settings must be valid and have their defaults. Others may annotate the
// configuration that they become in the shoot.
func Deploy(ctx context.Context, c client.Client, namespace string, settings *preservation.NodeMaintenance) error {
	objects := []client.Object{configOf(settings)}
	for _, definition := range definitions {
		objects = append(objects, definition.DeepCopy())
	}
	return Resources(c, namespace).Deploy(ctx, objects...)
}

// configOf sets every field that the API server would give a default.
func configOf(settings *preservation.NodeMaintenance) *maintenancev1alpha1.MaintenanceOperatorConfig {
	return &maintenancev1alpha1.MaintenanceOperatorConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: maintenancev1alpha1.SchemeGroupVersion.String(), Kind: "MaintenanceOperatorConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: maintenancev1alpha1.ConfigName, Namespace: maintenancev1alpha1.ConfigNamespace},
		Spec: maintenancev1alpha1.MaintenanceOperatorConfigSpec{
			MaxParallelOperations:         settings.MaxParallelOperations,
			MaxUnavailable:                settings.MaxUnavailable,
			LogLevel:                      maintenancev1alpha1.LogLevel(*settings.LogLevel),
			MaxNodeMaintenanceTimeSeconds: new(int32(settings.MaxNodeMaintenanceTime.Duration / time.Second)), //nolint:gosec // it is valid
		},
	}
}

// ForeignError says that somebody else has brought the API into the shoot, who takes care of NodeMaintenances as well.
type ForeignError struct {
	// Definitions are the names of CustomResourceDefinitions.
	Definitions []string
}

// Error says what to do about it.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("node maintenance cannot be enabled: the shoot has %s, without the label %s. Uninstall what has brought them, "+
		"such as the NVIDIA maintenance operator, and delete them, or remove nodeMaintenance from the provider configuration",
		strings.Join(e.Definitions, " and "), LabelDefinition)
}

// Check returns a ForeignError if somebody else has brought the API into the shoot.
func Check(ctx context.Context, shoot client.Reader) error {
	var foreign []string
	for _, name := range DefinitionNames() {
		definition := &metav1.PartialObjectMetadata{}
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		err := shoot.Get(ctx, client.ObjectKey{Name: name}, definition)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("failed to get CustomResourceDefinition %q of the shoot: %w", name, err)
		case err == nil && definition.Labels[LabelDefinition] != "true":
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		return &ForeignError{Definitions: foreign}
	}
	return nil
}
