// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// downtime is how long it takes until a new controller runs.
const downtime = 7 * time.Second

// crash is what happens at one of the controller's writes.
type crash struct {
	name string
	// applied says that the write is made although no answer comes.
	applied bool
	// alone says that only this write fails and the controller goes on.
	alone bool
}

var crashes = []crash{
	{name: "killed before the write"},
	{name: "killed after the write", applied: true},
	{name: "the write fails", alone: true},
	{name: "the answer is lost", applied: true, alone: true},
}

// arm lets the crash happen at the write with this number from now on. A controller that was killed neither reads nor
// writes any more. The function that is returned says whether it has happened.
func (e *environment) arm(number int, c crash) (crashed func() bool) {
	var (
		first = len(e.api.written())
		hit   = false
		gone  = errors.New("connection reset by peer")
	)
	e.api.read = func(string) error {
		if hit && !c.alone {
			return gone
		}
		return nil
	}
	e.api.write = func(n int, _ string, do func() error) error {
		if hit && !c.alone {
			return gone
		}
		if n-first != number {
			return do()
		}
		hit = true
		if c.applied {
			if err := do(); err != nil {
				return err
			}
		}
		return gone
	}
	return func() bool { return hit }
}

// end is what the objects are in the end. What tells only when something was done is left out.
type end struct {
	Machine       map[string]string
	Status        machinev1alpha1.CurrentStatus
	Node          map[string]string
	Taints        []string
	Unschedulable bool
	Condition     *corev1.NodeCondition
}

func (e *environment) end(ctx context.Context) end {
	GinkgoHelper()
	machine := e.machine(ctx, "m")
	result := end{Machine: machine.Annotations, Status: machine.Status.CurrentStatus}
	if _, ok := machine.Annotations[preservedSince]; ok {
		machine.Annotations[preservedSince] = "some time"
	}
	if since, ok := machine.Annotations[maintainedSince]; ok {
		machine.Annotations[maintainedSince], _, _ = strings.Cut(since, "/") // it ended when that was seen
	}
	if _, ok := machine.Annotations[released]; ok {
		machine.Annotations[released] = "some time"
		// However long ago: machine-controller-manager marks it as Failed.
		if machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && e.now().Sub(result.Status.LastUpdateTime.Time) > 10*time.Minute {
			result.Status.LastUpdateTime = metav1.Time{}
		}
	}
	node := &corev1.Node{}
	if err := e.shoot.Get(ctx, client.ObjectKey{Name: "m"}, node); err == nil {
		result.Node, result.Unschedulable = node.Annotations, node.Spec.Unschedulable
		for _, taint := range node.Spec.Taints {
			result.Taints = append(result.Taints, taint.Key)
		}
		if c := preservation.PreservedCondition(node); c != nil {
			result.Condition = &corev1.NodeCondition{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	return result
}

// crashCases is the number of crashes that were tried.
var crashCases int

var _ = ReportAfterSuite("P8: number of crashes", func(Report) { fmt.Printf("P8: %d crashes\n", crashCases) })

var _ = Describe("P8: crash", func() {
	type transition struct {
		// machine and node are the objects in the beginning; node may be nil. Before the transition, the controller has
		// done what there was to do.
		machine func() *machinev1alpha1.Machine
		node    func() *corev1.Node
		// trigger makes the transition due. Those that are nil begin with the objects as they are.
		trigger func(context.Context, *environment)
		// left are the own annotations that may be left on the machine; nil for any, as it is preserved.
		left []string
	}

	var (
		now        = Start.Add(time.Hour)
		nothing    = []string{}
		mark       = []string{released}
		byNode     = func(value string) func() *corev1.Node { return func() *corev1.Node { return Node("m", with(value)) } }
		counted    = []string{maintainedSince}
		maintained = func(opts ...NodeOption) func() *corev1.Node {
			return func() *corev1.Node { return Node("m", append(opts, maintainedFrom(now))...) }
		}
		noNode   = func() *corev1.Node { return nil }
		plain    = func() *corev1.Node { return Node("m") }
		finalize = func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }
		machine  = func(opts ...MachineOption) func() *machinev1alpha1.Machine {
			return func() *machinev1alpha1.Machine { return Machine("m", append(opts, finalize)...) }
		}
		healthy = machine()
		failed  = machine(failing(now))
		nearly  = func(opts ...MachineOption) func() *machinev1alpha1.Machine {
			return machine(append(opts, near(now))...)
		}
		joining = machine(Phase(machinev1alpha1.MachinePending, Start), func(m *machinev1alpha1.Machine) { m.Labels = map[string]string{"name": "pool"} })

		fails = func(ctx context.Context, e *environment) { e.editMachine(ctx, "m", failing(e.now())) }
		heals = func(ctx context.Context, e *environment) {
			e.editMachine(ctx, "m", Phase(machinev1alpha1.MachineRunning, e.now()))
		}
		nothingMore = func(context.Context, *environment) {} // but that the deadline has passed
		notReady    = func(opts ...NodeOption) func() *corev1.Node {
			return func() *corev1.Node { return Node("m", append(opts, NotReady)...) }
		}
		healsBeforeIt = func(ctx context.Context, e *environment) { e.heal(ctx, "m") }
		expire        = func(_ context.Context, e *environment) { e.pass(71 * time.Hour) } // an hour has passed
		deletes       = func(ctx context.Context, e *environment) {
			Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
		}
		nears = func(ctx context.Context, e *environment) {
			e.editMachine(ctx, "m", near(e.now()))
			e.editNodeStatus(ctx, "m", NotReady)
		}
		lower   = func(ctx context.Context, e *environment) { e.editDeployment(ctx, Share("0")) }
		disable = func(_ context.Context, e *environment) { e.disabled = true }
		setNode = func(opt NodeOption) func(context.Context, *environment) {
			return func(ctx context.Context, e *environment) { e.editNode(ctx, "m", opt) }
		}
		setMachine = func(opt MachineOption) func(context.Context, *environment) {
			return func(ctx context.Context, e *environment) { e.editMachine(ctx, "m", opt) }
		}
		withdraw      = MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, preserve) })
		until         = now.Add(3 * time.Hour)
		notRemediated = MachineOption(func(m *machinev1alpha1.Machine) { delete(m.Annotations, remediation) })
		remediated    = func(opts ...MachineOption) func() *machinev1alpha1.Machine {
			return machine(append(opts, remediatedUntil(until))...)
		}
		asked = func(value string, opts ...MachineOption) func() *machinev1alpha1.Machine {
			return machine(append(opts, Annotation(preserve, value))...)
		}
	)

	var (
		proof = NodeOption(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "GPUHealthy", Status: corev1.ConditionTrue})
		})
		report = func(ctx context.Context, e *environment) {
			e.editNodeStatus(ctx, "m", proof, func(n *corev1.Node) {
				n.Status.Conditions[len(n.Status.Conditions)-1].LastHeartbeatTime = metav1.NewTime(e.now())
			})
		}
		validates = func(ctx context.Context, e *environment) {
			e.editDeployment(ctx, DeploymentAnnotation(prefix+"validation-settings", `{"condition":"GPUHealthy"}`))
		}
		comesBack = func(ctx context.Context, e *environment) {
			validates(ctx, e)
			heals(ctx, e)
		}
		givenBack = func(ctx context.Context, e *environment) {
			validates(ctx, e)
			e.editNode(ctx, "m", without(maintenance), Taint("node.machine.sapcloud.io/preserved", e.now()))
		}
	)

	transitions := map[string]transition{
		"V1 of an auto-preserved machine": {failed, plain, comesBack, nil},
		"V1 by the node":                  {failed, byNode("when-failed"), comesBack, nil},
		"V1 after a maintenance":          {healthy, maintained(), givenBack, nil},
		"V3 of an auto-preserved machine": {failed, plain, func(ctx context.Context, e *environment) { comesBack(ctx, e); e.settle(ctx); report(ctx, e) }, nil},
		"V3 after a maintenance":          {healthy, maintained(), func(ctx context.Context, e *environment) { givenBack(ctx, e); e.settle(ctx); report(ctx, e) }, counted},
		"V4 of an auto-preserved machine": {failed, plain, func(ctx context.Context, e *environment) { comesBack(ctx, e); e.settle(ctx); e.pass(15 * time.Minute) }, nil},
		"V4 after a maintenance":          {healthy, maintained(), func(ctx context.Context, e *environment) { givenBack(ctx, e); e.settle(ctx); e.pass(15 * time.Minute) }, counted},
		"V5 by false": {failed, plain, func(ctx context.Context, e *environment) {
			comesBack(ctx, e)
			e.settle(ctx)
			setNode(with("false"))(ctx, e)
		}, nothing},
		"T1 by the node":                              {healthy, byNode("now"), nil, nil},
		"T1 by the machine":                           {asked("now"), plain, nil, nil},
		"T1 by the machine, without a node":           {asked("now"), noNode, nil, nil},
		"T2 by the node":                              {healthy, byNode("now"), fails, nil},
		"T2 by the machine":                           {asked("now"), plain, fails, nil},
		"T2 of an auto-preserved machine":             {failed, plain, func(ctx context.Context, e *environment) { heals(ctx, e); e.settle(ctx); fails(ctx, e) }, nil},
		"T3 by expiry, node":                          {healthy, byNode("now"), expire, nothing},
		"T3 by expiry, machine":                       {asked("now"), plain, expire, nothing},
		"T3 by false on the node":                     {healthy, byNode("now"), setNode(with("false")), nothing},
		"T3 by false on the machine":                  {asked("now"), plain, setMachine(Annotation(preserve, "false")), nothing},
		"T3 by withdrawal from the node":              {healthy, byNode("now"), setNode(without(preserve)), nothing},
		"T3 by an empty value on the node":            {healthy, byNode("now"), setNode(with("")), nothing},
		"T3 by withdrawal from the machine":           {asked("now"), plain, setMachine(withdraw), nothing},
		"T3 by when-failed on the node":               {healthy, byNode("now"), setNode(with("when-failed")), nothing},
		"T3 by when-failed on the machine":            {asked("now"), plain, setMachine(Annotation(preserve, "when-failed")), nothing},
		"T4 by the node":                              {failed, byNode("when-failed"), nil, nil},
		"T4 by the machine":                           {asked("when-failed", failing(now)), plain, nil, nil},
		"T5":                                          {failed, plain, nil, nil},
		"T5 without a node":                           {failed, noNode, nil, nil},
		"T5 of a machine that never joined":           {joining, noNode, nil, nil},
		"H4 of an auto-preserved machine":             {nearly(), notReady(), nil, nil},
		"H4 by the node":                              {nearly(), notReady(with("when-failed")), nil, nil},
		"H4 without a node":                           {nearly(), noNode, nil, nil},
		"H4 to T5":                                    {nearly(), notReady(), nothingMore, nil},
		"H4 to T5 without a node":                     {nearly(), noNode, nothingMore, nil},
		"H4 to T4 by the node":                        {nearly(), notReady(with("when-failed")), nothingMore, nil},
		"H4 to T4 by the machine":                     {nearly(Annotation(preserve, "when-failed")), notReady(), nothingMore, nil},
		"H4 to T2 by the node":                        {nearly(), notReady(with("now")), nothingMore, nil},
		"H4 to T2 by the machine":                     {nearly(Annotation(preserve, "now")), notReady(), nothingMore, nil},
		"H4 let go, auto":                             {nearly(), notReady(), healsBeforeIt, nothing},
		"H4 let go, node":                             {nearly(), notReady(with("when-failed")), healsBeforeIt, nothing},
		"H4 let go, machine":                          {nearly(Annotation(preserve, "when-failed")), notReady(), healsBeforeIt, nothing},
		"a claim is added by now on the node":         {failed, plain, setNode(with("now")), nil},
		"a claim is added by the machine":             {failed, plain, setMachine(Annotation(preserve, "when-failed")), nil},
		"a claim is added by when-failed on the node": {failed, plain, setNode(with("when-failed")), nil},
		"a claim is added without a node":             {failed, noNode, setMachine(Annotation(preserve, "when-failed")), nil},
		"a claim goes from the node": {failed, plain, func(ctx context.Context, e *environment) {
			setNode(with("now"))(ctx, e)
			e.settle(ctx)
			setNode(without(preserve))(ctx, e)
		}, nil},
		"a claim goes from the machine": {failed, plain, func(ctx context.Context, e *environment) {
			setMachine(Annotation(preserve, "when-failed"))(ctx, e)
			e.settle(ctx)
			setMachine(withdraw)(ctx, e)
		}, nil},
		"T7 of an auto-preserved machine":      {failed, plain, heals, nil},
		"T7 by the node":                       {failed, byNode("when-failed"), heals, nil},
		"T8 by expiry, auto":                   {failed, plain, expire, mark},
		"T8 by expiry, node":                   {failed, byNode("when-failed"), expire, mark},
		"T8 by expiry, machine":                {asked("when-failed", failing(now)), plain, expire, mark},
		"T8 by expiry, without a node":         {failed, noNode, expire, mark},
		"T8 by false on the node":              {failed, byNode("when-failed"), setNode(with("false")), mark},
		"T8 by false on the machine":           {failed, plain, setMachine(Annotation(preserve, "false")), mark},
		"T8 by withdrawal from the node":       {failed, byNode("when-failed"), setNode(without(preserve)), mark},
		"T8 by withdrawal from the machine":    {asked("when-failed", failing(now)), plain, setMachine(withdraw), mark},
		"T8 of a machine that never joined":    {joining, noNode, setMachine(Annotation(preserve, "false")), mark},
		"T9":                                   {failed, plain, lower, mark},
		"T10 of a running machine, node":       {healthy, byNode("now"), deletes, nothing},
		"T10 of a running machine, machine":    {asked("now"), plain, deletes, nothing},
		"T10 of a failed machine, auto":        {failed, plain, deletes, nothing},
		"T10 of a failed machine, node":        {failed, byNode("when-failed"), deletes, nothing},
		"T10 of a failed machine without node": {failed, noNode, deletes, nothing},
		"M12":                                  {healthy, maintained(), nil, nil},
		"M12 beside auto":                      {failed, plain, setNode(maintainedFrom(now)), nil},
		"M12 of a machine about to fail":       {nearly(), notReady(maintainedFrom(now)), nil, nil},
		"M12 beside when-failed, node":         {healthy, maintained(with("when-failed")), nears, nil},
		"M12 beside when-failed, machine":      {asked("when-failed"), maintained(), nears, nil},
		"M12 taken back, node":                 {nearly(), notReady(maintainedFrom(now), with("when-failed")), healsBeforeIt, nil},
		"M12 taken back, machine":              {nearly(), notReady(maintainedFrom(now)), healsBeforeIt, nil},
		"M12 by expiry":                        {healthy, maintained(), func(_ context.Context, e *environment) { e.pass(23 * time.Hour) }, counted},
		"M12 by expiry, failed":                {failed, maintained(), func(_ context.Context, e *environment) { e.pass(23 * time.Hour) }, append(counted, mark...)},
		"M13":                                  {healthy, maintained(), setNode(without(maintenance)), counted},
		"M13 of a machine under a hold":        {failed, notReady(maintainedFrom(now)), setNode(without(maintenance)), nil},
		"M13 beside auto": {failed, notReady(), func(ctx context.Context, e *environment) {
			setNode(maintainedFrom(now))(ctx, e)
			e.settle(ctx)
			e.heal(ctx, "m")
			setNode(without(maintenance))(ctx, e)
		}, nil},
		"X10":                            {remediated(), plain, nil, nil},
		"X10 of a machine about to fail": {remediated(near(now)), notReady(), nil, nil},
		"X10 of a failed machine":        {remediated(failing(now)), notReady(), nil, nil},
		"X10 against false, node":        {remediated(), byNode("false"), nil, nil},
		"X10 against false, machine":     {remediated(Annotation(preserve, "false")), plain, nil, nil},
		"X10 alone after false":          {remediated(), byNode("now"), setNode(with("false")), nil},
		"X10 beside auto":                {failed, notReady(), setMachine(remediatedUntil(until)), nil},
		"X10 extended":                   {remediated(), plain, setMachine(remediatedUntil(until.Add(time.Hour))), nil},
		"X10 over":                       {remediated(), plain, setMachine(notRemediated), nothing},
		"X10 over, with false":           {remediated(), byNode("false"), setMachine(notRemediated), nothing},
		"X10 over, taken over by T5":     {remediated(failing(now)), notReady(), setMachine(notRemediated), nil},
		"X10 over, without share": {remediated(failing(now)), notReady(), func(ctx context.Context, e *environment) {
			e.editDeployment(ctx, Share("0"))
			e.editMachine(ctx, "m", notRemediated)
		}, mark},
		"P10 of a running machine, node":       {healthy, byNode("now"), disable, nothing},
		"P10 of a running machine, machine":    {asked("now"), plain, disable, nothing},
		"P10 of a failed machine, auto":        {failed, plain, disable, mark},
		"P10 of a failed machine, node":        {failed, byNode("when-failed"), disable, mark},
		"P10 of a failed machine without node": {failed, noNode, disable, mark},
	}

	// begin returns an environment in which the transition is due.
	begin := func(ctx context.Context, holder preservation.Holder, t transition, later time.Duration) *environment {
		GinkgoHelper()
		e := withMachine(holder, t.machine(), t.node())
		if t.trigger != nil {
			e.settle(ctx)
			e.pass(time.Hour)
			t.trigger(ctx, e)
		}
		e.pass(later)
		return e
	}

	for holderName, holder := range holders {
		for _, name := range slices.Sorted(maps.Keys(transitions)) {
			t := transitions[name]
			It(holderName+" "+name, func(ctx SpecContext) {
				undisturbed := func(later time.Duration, status ...machinev1alpha1.CurrentStatus) end {
					e := begin(ctx, holder, t, later)
					for _, status := range status {
						e.editMachine(ctx, "m", Phase(status.Phase, status.LastUpdateTime.Time))
					}
					e.settle(ctx)
					return e.end(ctx)
				}
				want, wantLater := undisturbed(0), undisturbed(downtime)
				if t.left != nil {
					for key := range want.Machine {
						if key != preservedSince && !slices.Contains(t.left, key) {
							Expect(key).NotTo(HavePrefix(prefix))
						}
					}
					Expect(want.Node).NotTo(HaveKey(byMCM))
					Expect(want.Taints).To(BeEmpty())
				}

				for _, c := range crashes {
					for number := 1; ; number++ {
						e := begin(ctx, holder, t, 0)
						crashed := e.arm(number, c)
						for range 5 {
							result, err := e.reconcile(ctx)
							if !crashed() {
								continue
							}
							if e.disabled {
								Expect(err).To(HaveOccurred())
							} else {
								Expect(err).NotTo(HaveOccurred())
								Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
							}
							break
						}
						if !crashed() {
							Expect(number).To(BeNumerically(">", 1), "nothing was written")
							break
						}
						crashCases++
						machine, crashedAt := e.machine(ctx, "m"), e.now()
						isPutOff := func(m *machinev1alpha1.Machine) bool {
							status := m.Status.CurrentStatus
							return status.Phase == machinev1alpha1.MachineUnknown && status.LastUpdateTime.Time.Equal(crashedAt.Add(-9*time.Minute))
						}
						begun := metav1.HasAnnotation(machine.ObjectMeta, prefix+"cause") || machine.Status.CurrentStatus.PreserveExpiryTime != nil

						e.api.read, e.api.write = nil, nil
						e.pass(downtime)
						if !c.alone {
							e.restart()
						}
						e.settle(ctx)
						want := want
						if _, begins := want.Machine[prefix+"cause"]; number == 1 && !c.applied || begins && !begun {
							want = wantLater // nothing was on record
						}
						if isPutOff(machine) && isPutOff(e.machine(ctx, "m")) { // then it is not near
							e.pass(time.Minute)
							e.settle(ctx)
							want = undisturbed(downtime+time.Minute, machine.Status.CurrentStatus)
						}
						Expect(e.end(ctx)).To(Equal(want), "crashed at write %d, %s: %v", number, c.name, e.api.written())
					}
				}
			})
		}
	}
})
