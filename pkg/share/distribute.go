// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Deployment is a MachineDeployment, as far as its share depends on it.
type Deployment struct {
	// Name is its name.
	Name string
	// Class is the name of its MachineClass.
	Class string
	// Zone is nodeTemplate.zone of its MachineClass, empty if that names none.
	Zone string
	// Created is when it was created, zero if it is about to be.
	Created time.Time
}

// Unplaced is a MachineDeployment that gets nothing, and why.
type Unplaced struct {
	// Deployment is the name of the MachineDeployment.
	Deployment string
	// Reason says what is missing.
	Reason string
}

// Distribute returns the shares of a pool's MachineDeployments by name, and those that none can be determined for. A
// zone gets as many of autoPreserveFailedMax as Gardener gives it of minimum and maximum, by its position in the zones
// of the pool. If several MachineDeployments are in a zone, the oldest gets all and the others get 0, so that the sum is
// never exceeded.
//
// If the places are shared in the pool, each MachineDeployment gets all of them, whatever its zone: the preservation controller sees to it
// that they are not exceeded in sum (P20).
//
// Some providers name the zone in no MachineClass: vsphere has a MachineDeployment for each zone, equinix-metal one for all
// zones. The MachineDeployments of such a pool get what zones would, in the order of their names.
func Distribute(pool Pool, region string, settings Settings, deployments []Deployment) (map[string]Settings, []Unplaced) {
	var (
		shares   = make(map[string]Settings, len(deployments))
		unplaced []Unplaced
		holders  = map[int]string{}
		zones    = pool.Zones
	)
	if settings.SharedIn != "" {
		for _, deployment := range deployments {
			shares[deployment.Name] = settings
		}
		return shares, nil
	}
	if len(zones) > 1 && !slices.ContainsFunc(deployments, func(d Deployment) bool { return d.Zone != "" }) {
		zones = nil
		deployments = slices.Clone(deployments)
		for i := range deployments {
			deployments[i].Zone = deployments[i].Name
			zones = append(zones, deployments[i].Name)
		}
		slices.Sort(zones)
	}

	numbers := OverZones(settings.AutoPreserveFailedMax, max(len(zones), 1))
	for _, deployment := range oldestFirst(deployments) {
		index := zoneIndex(zones, region, deployment.Zone)
		if index < 0 {
			unplaced = append(unplaced, Unplaced{deployment.Name, fmt.Sprintf(
				"nodeTemplate.zone %q of its MachineClass %q is none of the zones %q of worker pool %q",
				deployment.Zone, deployment.Class, pool.Zones, pool.Name)})
			continue
		}

		share := settings
		share.AutoPreserveFailedMax = 0
		if holder, ok := holders[index]; ok {
			unplaced = append(unplaced, Unplaced{deployment.Name, fmt.Sprintf(
				"MachineDeployment %q of worker pool %q is in the same zone and has its share", holder, pool.Name)})
		} else {
			holders[index] = deployment.Name
			share.AutoPreserveFailedMax = numbers[index]
		}
		shares[deployment.Name] = share
	}

	return shares, unplaced
}

// OverZones returns how much of a number falls to each of some zones in their order. As Gardener has it for minimum and
// maximum (DistributeOverZones in extensions/pkg/controller/worker), all get the same, and the first ones what is left.
func OverZones(number int32, zones int) []int32 {
	numbers := make([]int32, zones)
	for i := range numbers {
		numbers[i] = number / int32(zones) // #nosec G115 -- a pool has a handful of zones
		if i < int(number)%zones {
			numbers[i]++
		}
	}
	return numbers
}

// zoneIndex returns the position of a machine's zone in the zones of its pool, or -1. Some providers, azure for one, put
// the region before the zone, and write a placeholder where a pool has no zones.
func zoneIndex(zones []string, region, zone string) int {
	if len(zones) <= 1 {
		return 0
	}
	if index := slices.Index(zones, zone); index >= 0 {
		return index
	}
	if short, ok := strings.CutPrefix(zone, region+"-"); ok {
		return slices.Index(zones, short)
	}
	return -1
}

func oldestFirst(deployments []Deployment) []Deployment {
	return slices.SortedFunc(slices.Values(deployments), func(a, b Deployment) int {
		switch {
		case a.Created.IsZero() != b.Created.IsZero():
			if a.Created.IsZero() {
				return 1
			}
			return -1
		default:
			return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
		}
	})
}
