// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"errors"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Maxima", func() {
	const then = ". The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised"

	var (
		ctx     = context.Background()
		c       client.Client
		check   *Maxima
		lists   int
		until   = Start.Add(time.Hour)
		maximum = DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/maximum", "3")
	)

	BeforeEach(func() {
		c, lists = newClient(), 0
		check = &Maxima{Reader: c, APIReader: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				lists++
				Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "machines are too big and too many")
				options := (&client.ListOptions{}).ApplyOptions(opts)
				Expect(options.Namespace).To(Equal(Namespace))
				Expect(options.Raw.ResourceVersion).To(Equal("0"))
				return c.List(ctx, list, opts...)
			},
		})}
	})

	create := func(objects []client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
	}

	DescribeTable("should be healthy", func(reads int, objects ...client.Object) {
		create(objects)
		Expect(check.Check(ctx, Namespace)).To(beHealthy())
		Expect(lists).To(Equal(reads))
	},
		Entry("without MachineDeployments", 0),
		Entry("where there may be more machines, without reading them", 0, Deployment("d", maximum, Replicas(2)), Machine("m", Preserved("Failed:Preserved", "auto", until))),
		Entry("where the cluster-autoscaler changes nothing, without reading them", 0, Deployment("d"), Machine("m", Preserved("Failed:Preserved", "auto", until))),
		Entry("where no machine is preserved", 1, Deployment("d", maximum), Machine("m")),
		Entry("where preserved machines have not failed", 1, Deployment("d", maximum), Machine("m", Preserved("Running:Preserved", "now", until))),
		Entry("where they belong to others", 1, Deployment("d", maximum, func(d *machinev1alpha1.MachineDeployment) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "other"}}
		}), Machine("m", Preserved("Failed:Preserved", "auto", until))),
	)

	It("should tell of each pool that preserved machines keep at its maximum", func() {
		named := func(name, zone string) DeploymentOption {
			return func(d *machinev1alpha1.MachineDeployment) {
				d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": zone}}
				d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": name, "topology.kubernetes.io/zone": zone}
			}
		}
		of := func(zone string) MachineOption {
			return func(m *machinev1alpha1.Machine) { m.Labels = map[string]string{"name": zone} }
		}
		failed := Preserved("Failed:Preserved", "auto", until)
		create([]client.Object{
			Deployment("d2", maximum, named("a", "z2")), Deployment("d1", maximum, named("a", "z1")), Deployment("d3", maximum, named("a", "z3")),
			Machine("m1", of("z1"), failed), Machine("m2", of("z2"), failed), Machine("m3", of("z2"), failed), Machine("m4", of("z3")),
		})
		Expect(check.Check(ctx, Namespace)).To(beUnhealthy(Equal("Pool a is at its maximum of 3 machines in zone z1 because 1 failed machine is preserved" + then +
			"; Pool a is at its maximum of 3 machines in zone z2 because 2 failed machines are preserved" + then)))
	})

	It("should return that it cannot look", func() {
		create([]client.Object{Deployment("d", maximum)})
		check.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("fake")
			},
		})
		_, err := check.Check(ctx, Namespace)
		Expect(err).To(MatchError("failed to list Machines: fake"))
	})
})
