// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
)

// qps and burst are how many requests it makes in a second, however many machines fail: it is in no hurry.
const qps, burst = 20, 50

// NewClient returns a client of the shoot for the failure history. Nothing that it reads is in a cache. Nobody is asked yet: the shoot does not
// have to be there.
func NewClient(shoot *rest.Config) (client.Client, error) {
	known := runtime.NewScheme()
	utilruntime.Must((&runtime.SchemeBuilder{corev1.AddToScheme, metav1.AddMetaToScheme, failuresv1alpha1.AddToScheme}).AddToScheme(known))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(failuresv1alpha1.SchemeGroupVersion.WithKind("MachineFailure"), meta.RESTScopeRoot)

	paced := rest.CopyConfig(shoot)
	paced.QPS, paced.Burst = qps, burst
	c, err := client.New(paced, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("failed to create the client of the failure history: %w", err)
	}
	return c, nil
}
