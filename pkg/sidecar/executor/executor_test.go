// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Run", func() {
	var (
		c       client.WithWatch
		machine *machinev1alpha1.Machine
		node    *corev1.Node
		// calls are the writes that were asked for, and before is called before each.
		calls  []string
		before func(client.Object) error
		// only is what the last deletion was asked for under.
		only *metav1.Preconditions
		run  *Run
	)

	BeforeEach(func(ctx SpecContext) {
		scheme := Scheme(clientgoscheme.AddToScheme)
		calls, before = nil, func(client.Object) error { return nil }
		call := func(obj client.Object, what string) error {
			calls = append(calls, what)
			return before(obj)
		}
		c = interceptor.NewClient(NewClientBuilder(scheme).
			WithObjects(Machine("m"), Node("m")).WithStatusSubresource(&machinev1alpha1.Machine{}, &corev1.Node{}).Build(), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := call(obj, obj.GetAnnotations()["write"]); err != nil {
					return err
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				only = (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
				return c.Delete(ctx, obj, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, resource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := call(obj, resource); err != nil {
					return err
				}
				return c.SubResource(resource).Patch(ctx, obj, patch, opts...)
			},
		})
		machine, node = Machine("m"), Node("m")
		Expect(c.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		run = &Run{Seed: c, Shoot: c}
	})

	// mark returns a write that says so on an object.
	mark := func(obj intent.Object, name string) intent.Write {
		return intent.Write{Before: obj, Edit: func(o intent.Object) { annotate(o, "write", name) }}
	}
	locked := func(write intent.Write) intent.Write { write.Lock = true; return write }
	afterAll := func(write intent.Write) intent.Write { write.AfterAll = true; return write }
	// to returns a locked write of a state.
	to := func(obj *corev1.Node, edit func(*corev1.Node)) intent.Write {
		after := obj.DeepCopy()
		edit(after)
		return intent.Write{Before: obj, After: after, Lock: true}
	}
	// others change an object behind our back.
	others := func(ctx context.Context, obj client.Object) {
		GinkgoHelper()
		theirs := obj.DeepCopyObject().(client.Object)
		annotate(theirs, "others", "true")
		calledBefore := before
		before = func(client.Object) error { return nil }
		Expect(c.Patch(ctx, theirs, client.MergeFrom(obj))).To(Succeed())
		calls, before = nil, calledBefore
	}

	It("should write in order, each on what came back of the one before", func(ctx SpecContext) {
		others(ctx, machine)
		run.Do(ctx, mark(machine, "1"), locked(intent.Write{Before: machine, Edit: func(o intent.Object) {
			Expect(o.GetAnnotations()).To(HaveKeyWithValue("others", "true"))
			annotate(o, "write", "2")
		}}), mark(node, "3"))
		Expect(calls).To(Equal([]string{"1", "2", "3"}))
		Expect(run.Err()).NotTo(HaveOccurred())
		Expect(run.Written(machine)).To(BeTrue())
		Expect(Latest(run, machine).Annotations).To(And(HaveKeyWithValue("others", "true"), HaveKeyWithValue("write", "2")))
		Expect(machine.Annotations).To(BeEmpty(), "it is a copy that is written")
	})

	It("should lock states against others, and not against itself", func(ctx SpecContext) {
		writes := []intent.Write{
			to(node, func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			{Before: node, After: func() *corev1.Node { n := node.DeepCopy(); n.Status.NodeInfo.BootID = "b"; return n }(), Status: true, Lock: true},
		}
		Expect(Apply(ctx, c, writes...).Err()).To(Succeed())
		Expect(calls).To(Equal([]string{"", "status"}))
		again := Apply(ctx, c, writes...)
		Expect(pace.OnlyConflicts(again.Err())).To(BeTrue(), "%v", again.Err())
		Expect(again.Changed()).To(BeFalse())
		Expect(calls).To(HaveLen(3), "none of an object of which one has failed")
	})

	Context("of a Machine unless it was edited", func() {
		// changed has somebody else change the Machine, and its status, after it was read.
		changed := func(ctx context.Context, edit func(*machinev1alpha1.Machine)) {
			GinkgoHelper()
			theirs := machine.DeepCopy()
			edit(theirs)
			Expect(c.Status().Patch(ctx, theirs.DeepCopy(), client.MergeFrom(machine))).To(Succeed())
			Expect(c.Patch(ctx, theirs, client.MergeFrom(machine))).To(Succeed())
		}
		unlessEdited := func(write intent.Write) intent.Write { write.LockEdits = true; return write }

		It("should be written whatever machine-controller-manager does to it", func(ctx SpecContext) {
			changed(ctx, func(m *machinev1alpha1.Machine) {
				m.Finalizers = []string{"theirs"}
				m.Status.LastOperation.Description = "theirs"
				m.Status.CurrentStatus = machinev1alpha1.CurrentStatus{Phase: machinev1alpha1.MachineTerminating, LastUpdateTime: metav1.NewTime(Start.Add(time.Hour))}
			})
			Expect(c.Delete(ctx, machine.DeepCopy())).To(Succeed())
			run.Do(ctx, unlessEdited(mark(machine, "1")))
			Expect(run.Err()).NotTo(HaveOccurred())
			Expect(Latest(run, machine)).To(And(
				HaveField("Annotations", HaveKeyWithValue("write", "1")), HaveField("Finalizers", ConsistOf("theirs")),
				HaveField("DeletionTimestamp", Not(BeNil())), HaveField("Status.CurrentStatus.Phase", machinev1alpha1.MachineTerminating),
			))
		})

		DescribeTable("should be refused for", func(ctx SpecContext, edit func(*machinev1alpha1.Machine)) {
			changed(ctx, edit)
			calls = nil
			err := Apply(ctx, c, unlessEdited(mark(machine, "1"))).Err()
			Expect(err).To(HaveOccurred())
			Expect(pace.OnlyConflicts(err)).To(BeTrue(), "%v", err)
			Expect(calls).To(HaveLen(2), "it may have been the form only")
		},
			Entry("an annotation", func(m *machinev1alpha1.Machine) { m.Annotations = map[string]string{"theirs": "true"} }),
			Entry("the expiry", func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: Start.Add(time.Hour)}
			}),
		)

		DescribeTable("should be refused for an edit that came back of an earlier write", func(ctx SpecContext, edit func(*machinev1alpha1.Machine)) {
			changed(ctx, edit)
			err := Apply(ctx, c, intent.Write{Before: machine, Status: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(Start.Add(time.Second))
			})}, unlessEdited(mark(machine, "1"))).Err()
			Expect(err).To(HaveOccurred())
			Expect(pace.OnlyConflicts(err)).To(BeTrue(), "%v", err)
		},
			Entry("an annotation", func(m *machinev1alpha1.Machine) { m.Annotations = map[string]string{"theirs": "true"} }),
			Entry("the expiry", func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: Start.Add(time.Hour)}
			}),
		)

		It("should write the status as well, and refuse that as well", func(ctx SpecContext) {
			toFailed := unlessEdited(intent.Write{Before: machine, Status: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.Phase = machinev1alpha1.MachineFailed
			})})
			changed(ctx, func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"theirs"} })
			run.Do(ctx, toFailed)
			Expect(run.Err()).NotTo(HaveOccurred())
			Expect(Latest(run, machine)).To(And(HaveField("Finalizers", ConsistOf("theirs")), HaveField("Status.CurrentStatus.Phase", machinev1alpha1.MachineFailed)))
			changed(ctx, func(m *machinev1alpha1.Machine) { m.Annotations = map[string]string{"theirs": "true"} })
			Expect(pace.OnlyConflicts(Apply(ctx, c, toFailed).Err())).To(BeTrue())
		})

		It("should be refused for any change with a lock as well", func(ctx SpecContext) {
			changed(ctx, func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"theirs"} })
			Expect(pace.OnlyConflicts(Apply(ctx, c, locked(unlessEdited(mark(machine, "1")))).Err())).To(BeTrue())
		})

		It("should be an error of anything but a Machine", func(ctx SpecContext) {
			Expect(Apply(ctx, c, unlessEdited(mark(node, "1"))).Err()).To(MatchError(ContainSubstring("a *v1.Node cannot be locked against edits")))
			Expect(calls).To(BeEmpty())
		})

		It("should be refused for another Machine of its name", func(ctx SpecContext) {
			machine.UID, machine.ResourceVersion = "gone", "1"
			err := Apply(ctx, c, unlessEdited(mark(machine, "1"))).Err()
			Expect(err).To(HaveOccurred())
			Expect(pace.OnlyConflicts(err)).To(BeTrue(), "%v", err)
		})

		It("should be written with a lock if the API server refuses the test", func(ctx SpecContext) {
			refuse := true
			before = func(client.Object) error {
				if refuse {
					refuse = false
					return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "test failed", 0, false)
				}
				return nil
			}
			run.Do(ctx, unlessEdited(mark(machine, "1")))
			Expect(run.Err()).NotTo(HaveOccurred())
			Expect(Latest(run, machine).Annotations).To(HaveKeyWithValue("write", "1"))
			Expect(calls).To(HaveLen(2))
		})

		It("should be written where there is no status", func(ctx SpecContext) {
			changed(ctx, func(m *machinev1alpha1.Machine) { m.Status = machinev1alpha1.MachineStatus{} })
			Expect(c.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			Expect(Apply(ctx, c, unlessEdited(mark(machine, "1"))).Err()).NotTo(HaveOccurred())
		})

		It("should not take what is invalid for a conflict", func(ctx SpecContext) {
			before = func(client.Object) error {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, "m", field.ErrorList{field.Invalid(field.NewPath("status"), "", "wrong")})
			}
			err := Apply(ctx, c, unlessEdited(mark(machine, "1"))).Err()
			Expect(err).To(MatchError(ContainSubstring("wrong")))
			Expect(pace.OnlyConflicts(err)).To(BeFalse())
		})
	})

	It("should delete the very object that was decided on", func(ctx SpecContext) {
		deleted := intent.Write{Before: node, Delete: true}
		others(ctx, node)
		Expect(pace.OnlyConflicts(Apply(ctx, c, locked(deleted)).Err())).To(BeTrue(), "it has changed")

		run.Do(ctx, deleted, mark(node, "1"))
		Expect(run.Err()).NotTo(HaveOccurred())
		Expect(*only.UID).To(Equal(node.UID), "it may be another one of the same name by now")
		Expect(calls).To(BeEmpty(), "nothing is written on it after that")
		Expect([]bool{run.Written(node), run.Gone(node)}).To(Equal([]bool{true, true}))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{})).To(MatchError(ContainSubstring("not found")))

		again := Apply(ctx, c, deleted)
		Expect(again.Err()).NotTo(HaveOccurred())
		Expect(again.Written(node)).To(BeFalse(), "somebody else has")
	})

	It("should leave conditions of others alone without a lock", func(ctx SpecContext) {
		theirs := node.DeepCopy()
		theirs.Status.Conditions = []corev1.NodeCondition{{Type: "Theirs", Status: corev1.ConditionTrue}}
		Expect(c.Status().Patch(ctx, theirs, client.MergeFrom(node))).To(Succeed())
		run.Do(ctx, intent.Write{Before: node, Status: true, Edit: intent.Edit(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Ours", Status: corev1.ConditionTrue})
		})})
		Expect(run.Err()).NotTo(HaveOccurred())
		Expect(Latest(run, node).Status.Conditions).To(ContainElements(HaveField("Type", BeEquivalentTo("Theirs")), HaveField("Type", BeEquivalentTo("Ours"))))
	})

	It("should call for nothing that changes nothing", func(ctx SpecContext) {
		write := mark(machine, "1")
		Expect(write.Changes()).To(BeTrue())
		run.Do(ctx, write, write, intent.Write{Before: node, After: node.DeepCopy()})
		Expect(calls).To(Equal([]string{"1"}))
		Expect(run.Written(node)).To(BeFalse())
	})

	It("should be there to be asked by several goroutines once it has ended", func(ctx SpecContext) {
		run.Do(ctx, mark(machine, "1"))
		var askers sync.WaitGroup
		for i := range 4 {
			askers.Go(func() {
				for j := range 1000 {
					other := Node(fmt.Sprintf("%d-%d", i, j))
					_, _ = run.Gone(other), run.Written(other)
					_ = run.Err()
				}
			})
		}
		askers.Wait()
		Expect(run.Written(machine)).To(BeTrue())
	})

	It("should tell of each write", func(ctx SpecContext) {
		var told int
		run.Wrote = func(_ context.Context, _ intent.Write) {
			told++
			Expect(calls).To(HaveLen(told))
		}
		run.Do(ctx, mark(machine, "1"), mark(machine, "1"), mark(node, "2"))
		Expect(told).To(Equal(2))
	})

	Context("where the node cannot be written to", func() {
		denied := errors.New("denied")

		BeforeEach(func() {
			before = func(obj client.Object) error {
				if _, ok := obj.(*corev1.Node); ok {
					return denied
				}
				return nil
			}
		})

		It("should go on with what does not wait for it", func(ctx SpecContext) {
			run.Do(ctx, mark(node, "1"), mark(node, "2"), mark(machine, "3"), afterAll(mark(machine, "4")), mark(machine, "5"))
			Expect(calls).To(Equal([]string{"1", "3"}), "and what comes after what waits")
			Expect(run.Err()).To(MatchError(denied))
			Expect(run.Err()).To(MatchError("failed to write Node m: denied"))
			Expect(run.ErrOf(machine)).NotTo(HaveOccurred())
			Expect(run.Changed()).To(BeTrue())
		})

		It("should go on where it is gone", func(ctx SpecContext) {
			Expect(c.Delete(ctx, node)).To(Succeed())
			before = func(client.Object) error { return nil }
			run.Do(ctx, mark(node, "1"), mark(node, "2"), afterAll(mark(machine, "3")))
			Expect(calls).To(Equal([]string{"1", "3"}))
			Expect(run.Gone(node)).To(BeTrue())
			Expect(run.Err()).NotTo(HaveOccurred())
		})
	})

	DescribeTable("should write nothing once what all is about is lost", func(ctx SpecContext, lose func(context.Context)) {
		run.Subject = machine
		lose(ctx)
		calls = nil
		run.Do(ctx, mark(machine, "1"), mark(node, "2"))
		run.Do(ctx, mark(node, "3"))
		Expect(calls).To(Equal([]string{"1"}))
	},
		Entry("because it is gone", func(ctx context.Context) { Expect(c.Delete(ctx, machine)).To(Succeed()) }),
		Entry("because it cannot be written to", func(context.Context) {
			before = func(client.Object) error { return errors.New("denied") }
		}),
	)

	It("should write on what it has read", func(ctx SpecContext) {
		others(ctx, machine)
		Expect(run.Read(ctx, c, machine)).To(BeTrue())
		run.Do(ctx, locked(mark(machine, "1")))
		Expect(run.Err()).NotTo(HaveOccurred())
		Expect(Latest(run, machine).Annotations).To(HaveLen(2))

		Expect(c.Delete(ctx, node)).To(Succeed())
		Expect(run.Read(ctx, c, node)).To(BeFalse())
		Expect(run.Gone(node)).To(BeTrue())
		run.Do(ctx, mark(node, "2"))
		Expect(calls).To(Equal([]string{"1"}))
	})

	It("P12: should wait for no call longer than its time, and live on when an edit panics", func(ctx SpecContext) {
		run.Timeout = time.Millisecond
		run.Shoot = interceptor.NewClient(c, interceptor.Funcs{Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
			deadline, _ := ctx.Deadline()
			Expect(time.Until(deadline)).To(BeNumerically("<=", run.Timeout))
			<-ctx.Done()
			return ctx.Err()
		}})
		run.Do(ctx, mark(node, "1"), intent.Write{Before: machine, Edit: func(intent.Object) { panic("no such annotation") }})
		Expect(run.ErrOf(node)).To(MatchError(context.DeadlineExceeded))
		Expect(run.ErrOf(machine)).To(MatchError(ContainSubstring("panic: no such annotation")))

		run.Fail(machine, errors.New("never mind"))
		Expect(run.ErrOf(machine)).To(MatchError(ContainSubstring("never mind")))
	})
})

func annotate(obj metav1.Object, key, value string) {
	annotations := map[string]string{key: value}
	for k, v := range obj.GetAnnotations() {
		if k != key {
			annotations[k] = v
		}
	}
	obj.SetAnnotations(annotations)
}
