// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package rollout rolls charts out on a real API server, and compares what their roles allow with what the processes ask
// for.
package rollout

import (
	"context"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
)

// Release is a chart on an API server.
type Release struct {
	// Deployment is nil if the chart has none.
	Deployment *appsv1.Deployment
	// Permissions are what the roles allow.
	Permissions []Permission
}

// Install renders a chart and creates its objects. The API server refuses fields that it does not know.
func Install(ctx context.Context, c client.Client, chart charts.Chart, namespace string, values map[string]any) *Release {
	GinkgoHelper()
	objects, err := chart.Render("machine-preservation", namespace, values)
	Expect(err).NotTo(HaveOccurred())

	release := &Release{}
	for _, object := range objects {
		Expect(c.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
		switch object.GetKind() {
		case "Deployment":
			release.Deployment = &appsv1.Deployment{}
			convert(object, release.Deployment)
		case "ClusterRole":
			role := &rbacv1.ClusterRole{}
			convert(object, role)
			release.Permissions = append(release.Permissions, Permissions("", role.Rules)...)
		case "Role":
			role := &rbacv1.Role{}
			convert(object, role)
			release.Permissions = append(release.Permissions, Permissions(role.Namespace, role.Rules)...)
		}
	}
	return release
}

func convert(object *unstructured.Unstructured, into any) {
	GinkgoHelper()
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)).To(Succeed())
}

// CreateNamespace creates a namespace that admits pods which follow the best practices of Kubernetes, and no others.
func CreateNamespace(ctx context.Context, c client.Client, name string) {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})).To(Succeed())
}

// Pod returns a pod as the Deployment has them.
func (r *Release) Pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: r.Deployment.Name + "-",
			Namespace:    r.Deployment.Namespace,
			Labels:       r.Deployment.Spec.Template.Labels,
		},
		Spec: *r.Deployment.Spec.Template.Spec.DeepCopy(),
	}
}

// CreatePriorityClass creates the priority class of the pods, which Gardener has.
func (r *Release) CreatePriorityClass(ctx context.Context, c client.Client) {
	GinkgoHelper()
	Expect(c.Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: r.Deployment.Spec.Template.Spec.PriorityClassName},
		Value:      1,
	})).To(Succeed())
}

// Arguments returns the arguments of the container, followed by others that take their place on this machine.
func (r *Release) Arguments(others ...string) []string {
	return slices.Concat(r.Deployment.Spec.Template.Spec.Containers[0].Args, others)
}

// MountPath returns where a volume is mounted, with the elements of a path below it.
func (r *Release) MountPath(volume string, elements ...string) string {
	GinkgoHelper()
	mounts := r.Deployment.Spec.Template.Spec.Containers[0].VolumeMounts
	index := slices.IndexFunc(mounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume })
	Expect(index).NotTo(BeNumerically("<", 0))
	return filepath.Join(append([]string{mounts[index].MountPath}, elements...)...)
}

// SetEnvironment gives this process the environment of the container, until the end of the suite.
func (r *Release) SetEnvironment() {
	GinkgoHelper()
	for _, variable := range r.Deployment.Spec.Template.Spec.Containers[0].Env {
		Expect(variable.ValueFrom.FieldRef.FieldPath).To(Equal("metadata.namespace"))
		GinkgoT().Setenv(variable.Name, r.Deployment.Namespace)
	}
}
