// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"slices"
	"strings"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
)

// Hosts checks that no host is off for longer than it may be because of a power cycle (X19).
type Hosts struct{ *hosts.Finder }

// Check returns which hosts are off for too long. Those of a control plane without a machine that may have one off are not asked for.
// Why they cannot be reached is in the log of the controller of the hosts, because the owner of the shoot reads the conditions.
func (h *Hosts) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	if isAny, err := h.HasMachines(ctx, namespace); err != nil {
		return nil, err
	} else if !isAny {
		return healthy(), nil
	}
	found, err := h.Find(ctx, namespace)
	if err != nil {
		return nil, err
	}
	overdue := found.Overdue(h.Clock.Now())
	if len(overdue) == 0 {
		return healthy(), nil
	}
	names := make([]string, 0, len(overdue))
	for i := range overdue {
		names = append(names, overdue[i].String())
	}
	slices.Sort(names)
	list := strings.Join(brief.First(names, maxNamed), ", ")
	if found.Unreachable != nil {
		return progressing("hosts may be off for longer than their power cycle allows, and cannot be reached: " + list), nil
	}
	return progressing("hosts are off for longer than their power cycle allows: " + list), nil
}
