// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

var _ = Describe("#NewDriverOf", func() {
	const namespace = "shoot--foo--bar"

	var (
		ctx = context.Background()
		c   client.Client
	)

	BeforeEach(func() { c = fakeclient.NewClientBuilder().Build() })

	driver := func(hosts *configv1alpha1.Hosts) (host.Access, error) {
		driver, err := NewDriverOf(c, c, hosts)(ctx, namespace)
		if err != nil {
			return host.Access{}, err
		}
		return driver.(*host.Driver).Access, nil
	}
	create := func(context string) {
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "metal", Namespace: namespace}, Data: map[string][]byte{"kubeconfig": fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Config","current-context":"a","clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],`+
				`"users":[{"name":"a","user":{"token":"t"}}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"%s}}]}`, context)}})).To(Succeed())
	}
	elsewhere := &configv1alpha1.Hosts{Kind: configv1alpha1.HostKindBareMetalHost, KubeconfigSecretName: "metal"}

	It("should reach hosts in the seed, in the control-plane namespace", func() {
		access, err := driver(&configv1alpha1.Hosts{Kind: configv1alpha1.HostKindBareMetalHost})
		Expect(err).NotTo(HaveOccurred())
		Expect(access).To(Equal(host.Access{Namespace: namespace, HostNamespace: namespace, Cached: c, APIReader: c, Writer: c}))
	})

	It("should reach hosts in another cluster, in the namespace of the context", func() {
		_, err := driver(elsewhere)
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		create(`,"namespace":"hosts"`)
		access, err := driver(elsewhere)
		Expect(err).NotTo(HaveOccurred())
		Expect(access.Namespace).To(Equal(namespace))
		Expect(access.HostNamespace).To(Equal("hosts"))
		Expect(access.Cached).NotTo(BeIdenticalTo(c))
	})

	It("should name the Secret whose kubeconfig is not valid", func() {
		create("")
		_, err := driver(elsewhere)
		Expect(err).To(MatchError(`failed to read the kubeconfig in Secret "metal": namespace of context "a": must be that of the hosts, but is empty`))
	})

	It("should tell that there is no driver", func() {
		_, err := driver(&configv1alpha1.Hosts{Kind: "Other"})
		Expect(err).To(MatchError(ContainSubstring(`no driver for hosts of kind "Other"`)))
	})
})

// owning is a driver that says that.
type owning struct {
	Driver
	hosts []remediation.Host
	err   error
}

func (o owning) Owned(context.Context, string, string) ([]remediation.Host, error) {
	return o.hosts, o.err
}

var _ = Describe("#Owned", func() {
	DescribeTable("X2, X15: hosts of a shoot", func(driver owning, err error, count int, matcher OmegaMatcher) {
		_, owned, err := DriverOf(func(context.Context, string) (Driver, error) { return driver, err }).Owned(context.Background(), "shoot", "seed")
		Expect(err).To(matcher)
		Expect(owned).To(HaveLen(count))
	},
		Entry("are those that are owned", owning{hosts: make([]remediation.Host, 2)}, nil, 2, Not(HaveOccurred())),
		Entry("are none if who had the kubeconfig has taken it away", owning{}, apierrors.NewNotFound(schema.GroupResource{}, "metal"), 0, Not(HaveOccurred())),
		Entry("are none if their kind is not served", owning{err: fmt.Errorf("failed: %w", host.ErrNoKind)}, nil, 0, Not(HaveOccurred())),
		Entry("are not known if they cannot be reached", owning{}, errors.New("fake"), 0, MatchError("failed to reach the hosts: fake")),
		Entry("are not known if they cannot be listed", owning{err: errors.New("fake")}, nil, 0, MatchError("failed to list hosts: fake")),
	)
})
