// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"fmt"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
)

var _ = Describe("LiveFleet", func() {
	It("should read all hosts, a page at a time", func(ctx SpecContext) {
		const pages = 3
		reader := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				options := (&client.ListOptions{}).ApplyOptions(opts)
				Expect(options.Limit).To(BeEquivalentTo(100))
				page, _ := strconv.Atoi(options.Continue)
				server := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"unclaimable": page == 1}}}
				server.SetName(fmt.Sprint("s", page))
				list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{server}
				if page+1 < pages {
					list.SetContinue(strconv.Itoa(page + 1))
				}
				return nil
			},
		}).Build()
		driver := &host.Driver{Kind: ironcore.Kind{}, Access: host.Access{APIReader: reader}}
		fleet, err := driver.LiveFleet(ctx, ironcore.Kind{})
		Expect(err).NotTo(HaveOccurred())
		Expect(fleet).To(HaveLen(pages))
		for i, h := range fleet {
			Expect([]any{h.Name, h.IsQuarantined}).To(Equal([]any{fmt.Sprint("s", i), i == 1}))
		}
	})
})
