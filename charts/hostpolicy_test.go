// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// It is evaluated as an API server does. What matches it, and that the drivers get along with it, is tested with one.
var _ = Describe("Policy for clusters of hosts", func() {
	const (
		account = "system:serviceaccount:hosts-of-shoot--foo--bar:machine-preservation"
		reboot  = v1alpha1.AnnotationReboot
		owner   = v1alpha1.AnnotationHostOwner
	)
	var (
		policy  *admissionregistrationv1.ValidatingAdmissionPolicy
		binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	)

	BeforeEach(func() {
		documents := strings.Split(read("../example/host-policy.yaml"), "\n---\n")
		Expect(documents).To(HaveLen(3))
		policy, binding = &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		Expect(yaml.UnmarshalStrict([]byte(documents[1]), policy)).To(Succeed())
		Expect(yaml.UnmarshalStrict([]byte(documents[2]), binding)).To(Succeed())
	})

	// validate returns why an update is refused, empty if it is not.
	validate := func(name, resource string, before, after map[string]any) string {
		GinkgoHelper()
		compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		Expect(err).NotTo(HaveOccurred())
		variables := make([]cel.NamedExpressionAccessor, 0, len(policy.Spec.Variables))
		for _, v := range policy.Spec.Variables {
			variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
		}
		options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
		compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
		compile := func(expression cel.ExpressionAccessor) cel.ConditionEvaluator {
			return compiler.CompileCondition([]cel.ExpressionAccessor{expression}, options, environment.StoredExpressions)
		}
		Expect(policy.Spec.MatchConditions).To(HaveLen(1))
		// The second one asks what else the account may do, of Servers only: that takes an API server.
		Expect(policy.Spec.Validations).To(HaveExactElements(
			HaveField("Expression", "variables.changed == ''"),
			HaveField("Expression", HavePrefix("request.resource.resource != 'servers' || ")),
		))
		validation := policy.Spec.Validations[0]
		matcher := matchconditions.NewMatcher(compile((*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[0])), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
		validator := validating.NewValidator(
			compile(&validating.ValidationCondition{Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason}),
			matcher,
			compiler.CompileCondition(nil, options, environment.StoredExpressions),
			compile(&validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}),
			policy.Spec.FailurePolicy, nil)

		gvr := schema.GroupVersionResource{Group: "hosts.example.com", Version: "v1", Resource: resource}
		gvk := gvr.GroupVersion().WithKind("Host")
		object, old := &unstructured.Unstructured{Object: after}, &unstructured.Unstructured{Object: before}
		attributes := admission.NewAttributesRecord(object, old, gvk, "ns", "h", gvr, "", admission.Update, &metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: name})
		result := validator.Validate(context.Background(), gvr, &admission.VersionedAttributes{
			Attributes: attributes, VersionedObject: object, VersionedOldObject: old, VersionedKind: gvk,
		}, nil, nil, 10_000_000, nil)
		var refused []string
		for _, decision := range result.Decisions {
			if decision.Action != validating.ActionAdmit {
				Expect(decision.Evaluation).To(Equal(validating.EvalDeny), decision.Message)
				Expect(decision.Reason).To(Equal(metav1.StatusReasonForbidden))
				refused = append(refused, decision.Message)
			}
		}
		return strings.Join(refused, "; ")
	}
	parse := func(manifest string) map[string]any {
		GinkgoHelper()
		object := map[string]any{}
		Expect(yaml.UnmarshalStrict([]byte(manifest), &object)).To(Succeed())
		return object
	}
	const host = "{apiVersion: v1, kind: Host, metadata: {name: h, uid: u, resourceVersion: '1'ANNOTATIONS}, spec: {online: true, power: 'On', image: {url: a, size: 1.5}}, status: {on: true}}"
	with := func(annotations string) string {
		return strings.Replace(host, "ANNOTATIONS", annotations, 1)
	}

	It("X11: is a fence, and is bound", func() {
		Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
		Expect(binding.Spec.PolicyName).To(Equal(policy.Name))
		Expect(binding.Spec.ValidationActions).To(HaveExactElements(admissionregistrationv1.Deny))
	})

	DescribeTable("X2, X11: lets through what a power cycle writes, and nothing else",
		func(resource, before, after, refused string) {
			if refused != "" {
				refused = "this account may only power-cycle the host, not change " + refused
			}
			Expect(validate(account, resource, parse(before), parse(after))).To(Equal(refused))
			for _, other := range []string{account + "-2", "machine-preservation", "system:serviceaccount:shoot--foo--bar:machine-controller-manager", "a:system:serviceaccount:b:machine-preservation"} {
				Expect(validate(other, resource, parse(before), parse(after))).To(BeEmpty(), other)
			}
		},
		Entry("nothing", "baremetalhosts", with(""), with(""), ""),
		Entry("the first annotations", "baremetalhosts", with(""), with(", annotations: {"+reboot+": a, "+owner+": b}"), ""),
		Entry("the last annotations", "baremetalhosts", with(", annotations: {"+reboot+": a, "+owner+": b}"), with(""), ""),
		Entry("the request taken back, of which the owner keeps a history", "baremetalhosts",
			with(", annotations: {a: b, "+reboot+": a, "+owner+": b}"), with(", annotations: {a: b, "+owner+": c}"), ""),
		Entry("what the API server writes", "baremetalhosts", with(", generation: 1"), with(", generation: 2, managedFields: [{manager: m}]"), ""),
		Entry("a host without a spec", "baremetalhosts", "{apiVersion: v1, kind: Host, metadata: {name: h}}", "{apiVersion: v1, kind: Host, metadata: {name: h, annotations: {"+reboot+": a}}}", ""),
		Entry("the power of a ServerClaim", "serverclaims", with(""), strings.Replace(with(", annotations: {"+reboot+": a}"), "'On'", "'Off'", 1), ""),
		Entry("the power of a BareMetalHost", "baremetalhosts", with(""), strings.Replace(with(""), "'On'", "'Off'", 1), "spec.power"),
		Entry("the image", "baremetalhosts", with(""), strings.Replace(with(""), "url: a", "url: b", 1), "spec.image"),
		Entry("the image of a ServerClaim, beside its power", "serverclaims", with(""), strings.Replace(strings.Replace(with(""), "url: a", "url: b", 1), "'On'", "'Off'", 1), "spec.image"),
		Entry("whether it is online", "baremetalhosts", with(""), strings.Replace(with(""), "online: true, ", "", 1), "spec.online"),
		Entry("the consumer", "baremetalhosts", with(""), strings.Replace(with(""), "spec: {", "spec: {consumerRef: {name: a}, ", 1), "spec.consumerRef"),
		Entry("all of its spec", "baremetalhosts", "{apiVersion: v1, kind: Host, metadata: {name: h}, spec: {online: true}}", "{apiVersion: v1, kind: Host, metadata: {name: h}}", "spec.online"),
		Entry("its status, where that is no resource of its own", "baremetalhosts", with(""), strings.Replace(with(""), "on: true", "on: false", 1), "status"),
		Entry("another annotation", "baremetalhosts", with(", annotations: {a: b}"), with(", annotations: {a: c}"), "annotation a"),
		Entry("another annotation taken away, beside a request", "baremetalhosts", with(", annotations: {a: b}"), with(", annotations: {"+reboot+": c}"), "annotation a"),
		Entry("that it is detached", "baremetalhosts", with(""), with(", annotations: {baremetalhost.metal3.io/detached: ''}"), "annotation baremetalhost.metal3.io/detached"),
		Entry("a label", "baremetalhosts", with(", labels: {a: b}"), with(", labels: {a: c}"), "metadata.labels"),
		Entry("a finalizer", "baremetalhosts", with(", finalizers: [a/b]"), with(""), "metadata.finalizers"),
		Entry("an owner, and more", "serverclaims", with(""), with(", ownerReferences: [{name: a}], annotations: {a: b}"), "metadata.ownerReferences, annotation a"),
	)
})
