// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	namespace = "shoot--foo--bar"
	container = "machine-preservation-controller"
	pools     = `"provider":{"workers":[{"name":"worker-a","maximum":3}]}`
)

// newScheme has what there is in a seed and in a shoot.
func newScheme() *runtime.Scheme {
	return builder.Scheme(
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme,
		gardencorev1beta1.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme, maintenancev1alpha1.AddToScheme,
	)
}

// newActuator returns an Actuator in a seed, which asks for the client of a shoot.
func newActuator(seed client.Client, shoot func() (client.Client, error)) (*Actuator, *testclock.FakeClock, *events.FakeRecorder) {
	clock, recorder := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), events.NewFakeRecorder(10)
	return &Actuator{
		Client:      seed,
		Clock:       clock,
		ShootClient: func(context.Context, string) (client.Client, error) { return shoot() },
		Schemas:     &machinecrd.Schemas{Machines: seed, MachineDeployments: seed},
		Recorder:    recorder,
	}, clock, recorder
}

func newExtension() *extensionsv1alpha1.Extension {
	ex := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
	ex.Spec.Type = "machine-preservation"
	return ex
}
