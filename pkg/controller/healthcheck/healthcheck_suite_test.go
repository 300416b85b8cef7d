// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"testing"
	"time"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestHealthCheck(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Health Check Controller Suite")
}

func newClient() client.Client {
	GinkgoHelper()
	scheme := builder.Scheme(appsv1.AddToScheme, apiextensionsv1.AddToScheme, extensionsv1alpha1.AddToScheme)
	return fakeclient.NewClientBuilder().WithScheme(scheme).Build()
}

func beHealthy() types.GomegaMatcher {
	return Equal(&extensionshealthcheck.SingleCheckResult{Status: gardencorev1beta1.ConditionTrue})
}

func beProgressing(detail types.GomegaMatcher) types.GomegaMatcher {
	return PointTo(MatchAllFields(Fields{
		"Status":               Equal(gardencorev1beta1.ConditionProgressing),
		"Detail":               detail,
		"Codes":                BeEmpty(),
		"ProgressingThreshold": HaveValue(Equal(5 * time.Minute)),
	}))
}

func beUnhealthy(detail types.GomegaMatcher, codes ...gardencorev1beta1.ErrorCode) types.GomegaMatcher {
	return PointTo(MatchAllFields(Fields{
		"Status":               Equal(gardencorev1beta1.ConditionFalse),
		"Detail":               detail,
		"Codes":                ConsistOf(codes),
		"ProgressingThreshold": BeNil(),
	}))
}
