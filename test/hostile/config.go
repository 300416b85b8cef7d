// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package hostile has provider configurations that cost whoever reads them as much as possible.
package hostile

import (
	"fmt"
	"strings"
)

// Configs make configurations of about the given size in bytes. None is valid.
var Configs = map[string]func(size int) string{
	"numbers for workers":       func(size int) string { return listOf(size, "1") },
	"workers without a name":    func(size int) string { return listOf(size, "{}") },
	"unknown fields of workers": func(size int) string { return listOf(size, `{"a":1,"b":2}`) },
	"workers that are the same": func(size int) string { return listOf(size, `{"name":"worker-1"}`) },
	"workers of no pool": func(size int) string {
		return listOf(size, `{"name":"x","machineControllerManager":{"autoPreserveFailedMax":-1}}`)
	},
	"fields that are set twice": func(size int) string { return listOf(size, `{"name":"worker-1","name":"worker-1"}`) },
	"unknown fields": func(size int) string {
		var fields strings.Builder
		for i := 0; fields.Len() < size-150; i++ {
			fmt.Fprintf(&fields, `"%d":0,`, i)
		}
		return Config(fields.String() + `"z":0`)
	},
	"a deep list": func(size int) string {
		depth := min(9000, size/2-100)
		return Config(`"workers":{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,"b":"` + strings.Repeat("b", size-2*depth-150) + `"}`)
	},
	"a long name":  func(size int) string { return listOf(size, `{"name":"`+strings.Repeat("a", size-200)+`"}`) },
	"a long field": func(size int) string { return Config(`"` + strings.Repeat("<", size-130) + `":0`) },
	"a long number": func(size int) string {
		return Config(`"machineControllerManager":{"autoPreserveFailedMax":1.` + strings.Repeat("0", size-200) + `}`)
	},
	"a long duration": func(size int) string {
		return Config(`"machineControllerManager":{"machinePreserveTimeout":"` + strings.Repeat("1h", (size-200)/2) + `x"}`)
	},
	"patterns that repeat": func(size int) string {
		pattern := `"` + strings.Repeat(".{1000}", 36) + `"`
		patterns := strings.Repeat(pattern+",", 31) + pattern
		return Config(`"drainStrategies":{"ignoredNamespacePatterns":[` + patterns + `]},"` + strings.Repeat("a", max(0, size-len(patterns)-180)) + `":0`)
	},
	"many patterns": func(size int) string {
		return Config(`"drainStrategies":{"ignoredNamespacePatterns":["a"` + strings.Repeat(`,"a"`, (size-180)/4) + `]}`)
	},
	"many namespaces": func(size int) string {
		return Config(`"nodeMaintenance":{"namespaces":["a"` + strings.Repeat(`,"a"`, (size-180)/4) + `]}`)
	},
	"long namespaces": func(size int) string {
		name := `"` + strings.Repeat("A", (size-200)/32-3) + `"`
		return Config(`"nodeMaintenance":{"namespaces":[` + strings.Repeat(name+",", 31) + name + `]}` + strings.Repeat(" ", max(0, (size-200)%32)))
	},
	"a long percentage": func(size int) string {
		return Config(`"nodeMaintenance":{"maxUnavailable":"` + strings.Repeat("1", size-180) + `%"}`)
	},
	"no text": func(size int) string { return Config(`"kind":"` + strings.Repeat("\xff", size-130) + `"`) },
}

// Config returns a configuration with the given fields.
func Config(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + fields + "}"
}

// listOf returns a configuration of about the given size that has the same worker again and again.
func listOf(size int, worker string) string {
	return Config(`"workers":[` + worker + strings.Repeat(","+worker, max(0, (size-130)/(len(worker)+1)-1)) + "]")
}
