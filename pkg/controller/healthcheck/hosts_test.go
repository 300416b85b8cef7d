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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// ownedHosts are hosts that are off for us.
type ownedHosts struct {
	hosts.Driver // a check releases nothing
	hosts        []remediation.Host
	err          error
}

func (o *ownedHosts) Owned(context.Context, string, string) ([]remediation.Host, error) {
	return o.hosts, o.err
}

var _ = Describe("Hosts", func() {
	const prefix = "machine-preservation.extensions.gardener.cloud/"

	// The shoot's owner, who reads the conditions, is not to know where the hosts are.
	unreachable := errors.New(`Get "https://hosts.example:6443/apis": dial tcp 10.1.2.3:6443: connect: connection refused`)

	var (
		ctx   = context.Background()
		c     client.Client
		owned *ownedHosts
		asked int
		clock *testclock.FakeClock
		check *Hosts
	)

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
	cycled := func(name string) {
		m := Machine(name, Of(Set("set", Deployment("pool"))), Annotation(prefix+"power-cycle-phase", "PoweringOff"),
			Annotation(prefix+"power-cycle-record", `{"began":"2026-03-01T12:00:00Z","since":"2026-03-01T12:00:00Z"}`))
		m.Labels[prefix+"power-cycle"] = "true"
		create(m)
		owned.hosts = append(owned.hosts, remediation.Host{Namespace: "hosts", Name: "h-" + name, Requested: true, Owner: &remediation.Owner{
			Seed: "seed", Namespace: Namespace, Machine: name, UID: apitypes.UID("machine-" + name), Time: Start,
		}})
	}

	BeforeEach(func() {
		c, owned, asked, clock = newClient(), &ownedHosts{}, 0, testclock.NewFakeClock(Start)
		check = &Hosts{Finder: &hosts.Finder{Reader: c, APIReader: c, Clock: clock, MaxServicing: 2 * time.Hour, Driver: func(context.Context, string) (hosts.Driver, error) {
			asked++
			return owned, nil
		}}}
		deployment := Deployment("pool", DeploymentAnnotation(prefix+"power-cycle-settings", `{}`))
		create(deployment, Set("set", deployment), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "shoot-access-machine-preservation-controller", Namespace: Namespace, Annotations: map[string]string{prefix + "power-cycle-seed": "seed"},
		}})
	})

	It("X19: should be healthy until one minute after the deadline, and then name the host", func() {
		cycled("m")
		clock.Step(11*time.Minute - time.Second)
		expect(beHealthy())
		clock.Step(time.Second)
		expect(beProgressing(Equal("hosts are off for longer than their power cycle allows: hosts/h-m of machine m")))
		owned.hosts = nil
		expect(beHealthy())
	})

	It("X19: should ask for no hosts of a shoot without machines that may have one off", func() {
		cycled("m")
		Expect(c.Delete(ctx, Machine("m"))).To(Succeed())
		create(Machine("n"))
		clock.Step(time.Hour)
		expect(beHealthy())
		Expect(asked).To(BeZero())
	})

	It("X15, X19: should ask for no hosts where power cycles are not switched on", func() {
		cycled("m")
		Expect(c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: Namespace}})).To(Succeed())
		clock.Step(time.Hour)
		expect(beHealthy())
		Expect(asked).To(BeZero())
	})

	It("X18: should not name a host that is being serviced, for two hours", func() {
		cycled("m")
		owned.hosts[0].Servicing = "Its firmware is being updated."
		clock.Step(2*time.Hour + 11*time.Minute - time.Second)
		expect(beHealthy())
		clock.Step(time.Second)
		expect(beProgressing(HaveSuffix("hosts/h-m of machine m")))
	})

	It("X19: should name no more than ten", func() {
		for i := range 13 {
			cycled(fmt.Sprintf("m%02d", i))
		}
		clock.Step(time.Hour)
		expect(beProgressing(HaveSuffix("hosts/h-m08 of machine m08, hosts/h-m09 of machine m09, and 3 more")))
	})

	It("X19: should name the machines whose hosts may be off while these cannot be reached", func() {
		cycled("m")
		owned.err = unreachable
		clock.Step(11*time.Minute - time.Second)
		expect(beHealthy())
		clock.Step(time.Second)
		expect(beProgressing(Equal("hosts may be off for longer than their power cycle allows, and cannot be reached: that of machine m")))
	})

	It("should return that it cannot look", func() {
		cycled("m")
		owned.err = unreachable
		check.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("fake")
			},
		})
		_, err := check.Check(ctx, Namespace)
		Expect(err).To(MatchError("failed to list Machines: fake"))
	})
})
