// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// note is a line of a timeline that is no write.
type note struct {
	at        time.Time
	who, text string
}

func (w *World) note(who, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.notes = append(w.notes, note{time.Now(), who, text})
}

// timeline tells all that was done, and all that was written because of it but for heartbeats.
func (w *World) timeline() string {
	w.mutex.Lock()
	notes := slices.Clone(w.notes)
	w.mutex.Unlock()
	for _, change := range slices.Concat(w.seed.Log(), w.shoot.Log()) {
		if text := describe(change); text != "" {
			notes = append(notes, note{change.At, change.By, text})
		}
	}
	slices.SortStableFunc(notes, func(a, b note) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "%s %-18s %s\n", stamp(n.at.Sub(w.begin)), n.who, n.text)
	}
	return b.String()
}

// stamp formats a time since the beginning.
func stamp(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d:%06.3f", int(d.Hours()), int(d.Minutes())%60, (d % time.Minute).Seconds())
}

// noise is what nobody wants to read of.
var noise = []string{
	"metadata.resourceVersion", "metadata.generation", "metadata.uid", "metadata.creationTimestamp", "metadata.ownerReferences",
	"metadata.finalizers", "apiVersion", "kind", "spec.template", "spec.selector", "spec.nodeTemplate", "spec.strategy", "metadata.labels",
	"status.observedGeneration", "status.lastOperation.lastUpdateTime", "status.addresses", "status.failedMachines",
}

func describe(change *Change) string {
	what := strings.ToLower(resources[change.resource].Kind) + " " + change.name
	before, after := map[string]string{}, map[string]string{}
	if change.Before != nil {
		flatten(before, "", change.Before.Object)
	}
	flatten(after, "", change.Object.Object)
	switch change.Type {
	case "DELETED":
		return what + " is gone"
	case "ADDED":
		if node, ok, _ := unstructured.NestedString(change.Object.Object, "spec", "nodeName"); ok {
			return what + " is created on " + node
		}
		return what + " is created"
	}
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(merged(before, after))) {
		if before[path] == after[path] || slices.ContainsFunc(noise, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			continue
		}
		// The phase of a maintenance is the reason of its condition.
		if strings.Contains(path, "onditions[") && !strings.HasSuffix(path, "].status") && !(change.resource == "nodemaintenances" && strings.HasSuffix(path, "].reason")) {
			continue
		}
		short := strings.NewReplacer("metadata.annotations.", "", "machine-preservation.extensions.gardener.cloud/", "", "status.", "", "currentStatus.", "").Replace(path)
		lines = append(lines, fmt.Sprintf("%s: %s > %s", short, shorten(before[path]), shorten(after[path])))
	}
	if len(lines) == 0 {
		return ""
	}
	return what + "  " + strings.Join(lines, ", ")
}

// shorten returns a value as it is shown.
func shorten(value string) string {
	const most = 40
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	return cmp.Or(value, "-")
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// flatten adds all fields below a value to fields. An element of a list is named by what it is about.
func flatten(fields map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for field, inner := range value {
			flatten(fields, strings.TrimPrefix(path+"."+field, "."), inner)
		}
	case []any:
		for i, inner := range value {
			name := fmt.Sprint(i)
			if object, ok := inner.(map[string]any); ok {
				for _, field := range []string{"type", "key", "name"} {
					if text, ok, _ := unstructured.NestedString(object, field); ok {
						name = text
						break
					}
				}
			}
			flatten(fields, path+"["+name+"]", inner)
		}
	default:
		fields[path] = fmt.Sprint(value)
	}
}
