// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

// Orphans returns which of a control plane's hosts are to be released as no cycle needs them off: their Machine is gone, also
// if there is another of its name, no cycle of it is under way, or it has another host now (X2). One whose request somebody else
// has taken back is among them: more than that belongs to a release. The hosts are to be read before the machines: what is
// written on a Machine comes before the request for its host.
func Orphans(hosts []Host, machines []*machinev1alpha1.Machine) []Host {
	keptOff := map[types.UID]types.UID{}
	for _, m := range machines {
		if s := readState(m); s.keepsOff() {
			keptOff[m.UID] = s.record.Host
		}
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool {
		if h.Owner == nil {
			return true
		}
		host, ok := keptOff[h.Owner.UID]
		return ok && host == h.UID
	})
}
