// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// PolicyName is the name of the ValidatingAdmissionPolicy, and of its binding.
const PolicyName = "maintenanceoperatorconfigs." + v1alpha1.GroupName

// Policy returns what refuses a MaintenanceOperatorConfig that nobody would read. It is for as long as node maintenance is
// enabled, other than the definitions: nobody reads any after that. What is there already can be changed, and says in its status
// that it does not count. Like our webhooks it fails open.
func Policy() []client.Object {
	namespace, name := maintenancev1alpha1.ConfigNamespace, maintenancev1alpha1.ConfigName
	return []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: new(admissionregistrationv1.Ignore),
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule: admissionregistrationv1.Rule{
								APIGroups:   []string{maintenancev1alpha1.GroupName},
								APIVersions: []string{"*"},
								Resources:   []string{"maintenanceoperatorconfigs"},
							},
						},
					}},
				},
				Validations: []admissionregistrationv1.Validation{{
					Expression: fmt.Sprintf("object.metadata.namespace == '%s' && object.metadata.name == '%s'", namespace, name),
					Message:    fmt.Sprintf("nobody would read it: the limits are those of %s/%s, and are set in the Shoot", namespace, name),
					Reason:     new(metav1.StatusReasonForbidden),
				}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        PolicyName,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	}
}
