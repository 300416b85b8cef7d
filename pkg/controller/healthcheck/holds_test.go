// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Holds", func() {
	const (
		priority = "machinepriority.machine.sapcloud.io"
		trigger  = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
		prefix   = "preserved machines will be deleted, because they were chosen for deletion before they were preserved: "
	)

	var (
		ctx       = context.Background()
		c         client.Client
		check     *Holds
		preserved = Preserved("Failed:Preserved", "auto", Start.Add(time.Hour))
	)

	BeforeEach(func() {
		c = newClient()
		check = &Holds{Reader: c, APIReader: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "machines are too big and too many")
				options := (&client.ListOptions{}).ApplyOptions(opts)
				Expect(options.Namespace).To(Equal(Namespace))
				Expect(options.Raw.ResourceVersion).To(Equal("0"))
				return c.List(ctx, list, opts...)
			},
		})}
	})

	create := func(objects ...client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
	}
	expect := func(matcher types.GomegaMatcher) {
		GinkgoHelper()
		Expect(check.Check(ctx, Namespace)).To(matcher)
	}

	DescribeTable("should be healthy",
		func(objects ...client.Object) {
			create(objects...)
			expect(beHealthy())
		},
		Entry("without machines"),
		Entry("when preserved machines are the last to go", Machine("m", preserved, Annotation(priority, "4")), Deployment("pool", DeploymentAnnotation(trigger, ""))),
		Entry("when others have been chosen", Machine("m", preserved), Machine("n", Annotation(priority, "1")), Deployment("pool", DeploymentAnnotation(trigger, "n~2026-03-01T12:00:00Z"))),
	)

	It("should be healthy when a preserved machine is being deleted already", func() {
		machine := Machine("m", preserved, Annotation(priority, "1"), Deleted(Start))
		create(machine)
		Expect(c.Delete(ctx, machine)).To(Succeed())
		expect(beHealthy())
	})

	DescribeTable("should name preserved machines that have been chosen",
		func(objects ...client.Object) {
			create(objects...)
			expect(beUnhealthy(Equal(prefix + "m")))
		},
		Entry("by their priority", Machine("m", preserved, Annotation(priority, "1"))),
		Entry("while they have not failed", Machine("m", Preserved("Running:Preserved", "now", Start.Add(time.Hour)), Annotation(priority, "1"))),
		Entry("in the MachineDeployment", Machine("m", preserved), Machine("n"), Deployment("pool", DeploymentAnnotation(trigger, "n~2026-03-01T12:00:00Z,m~2026-03-01T12:00:00Z"))),
		Entry("in the MachineDeployment, as of older versions", Machine("m", preserved), Deployment("pool", DeploymentAnnotation(trigger, "m"))),
	)

	It("should name no more than ten", func() {
		for i := range 13 {
			create(Machine(fmt.Sprintf("m%02d", i), preserved, Annotation(priority, "1")))
		}
		expect(beUnhealthy(Equal(prefix + "m00, m01, m02, m03, m04, m05, m06, m07, m08, m09, and 3 more")))
	})

	It("should return that it cannot look", func() {
		check.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("fake")
			},
		})
		_, err := check.Check(ctx, Namespace)
		Expect(err).To(MatchError("failed to list Machines: fake"))
	})
})
