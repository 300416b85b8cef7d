// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// The fixtures in testdata are what provider extensions make of a Worker. Each says where that is from.
var _ = Describe("Providers", func() {
	// The maxima of each fixture, and the shares of a MachineDeployment in their order.
	maxima := [...]int{1, 2, 5}
	type shares [len(maxima)]int

	// What Gardener gives to the first, the second and the third of three, of two, and to the only zone.
	var (
		firstOf3, secondOf3, thirdOf3 = shares{1, 1, 2}, shares{0, 1, 2}, shares{0, 0, 1}
		firstOf2, secondOf2           = shares{1, 1, 3}, shares{0, 1, 2}
		all                           = shares{1, 2, 5}
	)

	// The MachineDeployments are named without the technical id of the shoot. Those that are not expected must have no
	// share.
	DescribeTable("should distribute over zones as Gardener does",
		func(fixture string, expected map[string]shares, expectedEvents ...string) {
			for i, maximum := range maxima {
				By(fmt.Sprintf("Distributing %d", maximum))
				fixture := newProvider(fixture, maximum)
				wanted := map[string]string{}
				for name, s := range expected {
					wanted[name] = strconv.Itoa(s[i])
				}

				fixture.reconcile()
				Expect(fixture.shares()).To(Equal(wanted))
				Expect(fixture.events()).To(Equal(expectedEvents))
				Expect(fixture.patches).To(Equal(len(wanted)))

				fixture.reconcile()
				Expect(fixture.patches).To(Equal(len(wanted)), "the second time, there is nothing to be written")
			}
		},
		Entry("aws, zones not in the order of their names", "aws/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf3, "worker-a-z2": secondOf3, "worker-a-z3": thirdOf3,
		}),
		Entry("aws, in the middle of a rolling update", "aws/rolling-update.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
		}),
		Entry("aws, updated in place", "aws/in-place.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
			"worker-m-z1": firstOf2, "worker-m-z2": secondOf2,
		}),
		Entry("azure, zones not contiguous and not in order", "azure/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z3": secondOf2,
			"worker-b-z3": firstOf3, "worker-b-z1": secondOf3, "worker-b-z2": thirdOf3,
		}),
		Entry("azure, no zones", "azure/no-zones.yaml", map[string]shares{
			"worker-a": all, "worker-b": all,
		}),
		Entry("gcp", "gcp/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf3, "worker-a-z2": secondOf3, "worker-a-z3": thirdOf3,
		}),
		Entry("openstack", "openstack/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
		}),
		Entry("openstack, one zone", "openstack/one-zone.yaml", map[string]shares{
			"worker-a-z1": all,
		}),
		Entry("stackit", "stackit/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
		}),
		Entry("alicloud, zones in the names", "alicloud/zones.yaml", map[string]shares{
			"worker-a-eu-central-1b": firstOf2, "worker-a-eu-central-1a": secondOf2,
		}),
		Entry("alicloud, one MachineClass that names its zone and one that does not", "alicloud/half-updated.yaml", map[string]shares{
			"worker-a-eu-central-1b": firstOf2,
		}, `Warning ShareNotPlaced MachineDeployment "shoot--foo--ali-worker-a-eu-central-1a" gets no share: nodeTemplate.zone "" of its `+
			`MachineClass "shoot--foo--ali-worker-a-eu-central-1a-c4471" is none of the zones ["eu-central-1b" "eu-central-1a"] of worker pool "worker-a"`),
		Entry("vsphere, zones named nowhere", "vsphere/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf3, "worker-a-z2": secondOf3, "worker-a-z3": thirdOf3,
		}),
		Entry("hcloud, zones in the names only", "hcloud/zones.yaml", map[string]shares{
			"worker-a-fsn1-dc14": firstOf2, "worker-a-nbg1-dc3": secondOf2,
		}),
		Entry("equinix-metal, one MachineDeployment for all zones", "equinix-metal/facilities.yaml", map[string]shares{
			"worker-a": all, "worker-b": all,
		}),
		Entry("metal, one MachineDeployment", "metal/partition.yaml", map[string]shares{
			"worker-a": all,
		}),
		Entry("ironcore-metal, label of the pool without a value", "ironcore-metal/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
		}),
		Entry("local, zones and no zones", "local/zones.yaml", map[string]shares{
			"worker-a-z1": firstOf2, "worker-a-z2": secondOf2,
			"worker-b-z1": all,
		}),
	)
})

// provider has what a provider extension has made, and the extension with a maximum for all pools.
type provider struct {
	client.Client

	worker     *extensionsv1alpha1.Worker
	reconciler *Reconciler
	recorder   *events.FakeRecorder
	patches    int
}

func newProvider(fixture string, maximum int) *provider {
	GinkgoHelper()
	scheme := builder.Scheme(extensionsv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)

	p := &provider{recorder: events.NewFakeRecorder(10)}
	objects := readFixture(scheme, fixture)
	p.worker = objects[0].(*extensionsv1alpha1.Worker)

	extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: p.worker.Namespace}}
	extension.Spec.Type = "machine-preservation"
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig","machineControllerManager":{"autoPreserveFailedMax":%d}}`, maximum)}

	p.Client = fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithObjects(extension).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			p.patches++
			return c.Patch(ctx, object, patch, opts...)
		},
	}).Build()
	p.reconciler = &Reconciler{
		Client: p,
		Planner: &controlplane.Planner{Reader: p, Defaults: &configv1alpha1.ControllerConfiguration{
			AutoPreserveFailedMax:  new(int32(0)),
			MachinePreserveTimeout: &metav1.Duration{Duration: 72 * time.Hour},
		}},
		Schemas:  &machinecrd.Schemas{Machines: p, MachineDeployments: p},
		Recorder: p.recorder,
	}
	return p
}

// readFixture refuses fields that the API does not have.
func readFixture(scheme *runtime.Scheme, fixture string) []client.Object {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(fixture)))
	Expect(err).NotTo(HaveOccurred())

	var objects []client.Object
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, document := range strings.Split(string(content), "\n---\n")[1:] { // the first one is the header
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		Expect(err).NotTo(HaveOccurred())
		objects = append(objects, object.(client.Object))
	}
	return objects
}

func (p *provider) reconcile() {
	GinkgoHelper()
	result, err := p.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p.worker)})
	Expect(err).NotTo(HaveOccurred())
	Expect(result).To(BeZero())
}

// shares returns those that are written, by the name of the MachineDeployment without the technical id of the shoot.
func (p *provider) shares() map[string]string {
	GinkgoHelper()
	deployments := &machinev1alpha1.MachineDeploymentList{}
	Expect(p.List(context.Background(), deployments)).To(Succeed())
	shares := map[string]string{}
	for _, deployment := range deployments.Items {
		if share, ok := deployment.Annotations["machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max"]; ok {
			shares[strings.TrimPrefix(deployment.Name, p.worker.Namespace+"-")] = share
		}
	}
	return shares
}

func (p *provider) events() []string {
	recorded := []string{}
	for len(p.recorder.Events) > 0 {
		recorded = append(recorded, <-p.recorder.Events)
	}
	return recorded
}
