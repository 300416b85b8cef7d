// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
)

// textSizes are how many compressed bytes are left of the labels, of the annotations and of each message of an object. They are tried one
// after the other until the bundle is small enough.
var textSizes = []float64{1 << 10, 256}

// textCut stands for what was cut.
const textCut = "(cut)"

// cutTexts returns JSON without those labels and annotations, and without the end of those messages, that take the most: what is random
// goes first, what compresses stays. It returns whether that was any.
func cutTexts(data []byte, size float64) ([]byte, bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil || !cutValue(value, size) {
		return data, false
	}
	after, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return data, false
	}
	return append(after, '\n'), true
}

func cutValue(value any, size float64) (isCut bool) {
	switch value := value.(type) {
	case []any:
		for i := range value {
			isCut = cutValue(value[i], size) || isCut
		}
	case map[string]any:
		for key, child := range value {
			switch entries, isMap := child.(map[string]any); {
			case isMap && (key == "labels" || key == "annotations"):
				isCut = cutEntries(entries, size) || isCut
			case key == "message" || key == "note":
				text, _ := child.(string)
				if cost := costOf(text); cost > size {
					end := int(float64(len(text)) * size / cost)
					value[key] = string(bytes.ToValidUTF8([]byte(text[:end]), nil)) + textCut
					isCut = true
				}
			default:
				isCut = cutValue(child, size) || isCut
			}
		}
	}
	return isCut
}

// cutEntries removes those that take the most until the others take no more than size.
func cutEntries(entries map[string]any, size float64) bool {
	total, costs := 0.0, map[string]float64{}
	for key, value := range entries {
		text, _ := value.(string)
		costs[key] = costOf(key + text)
		total += costs[key]
	}
	if total <= size {
		return false
	}
	keys := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(costs[b], costs[a]), cmp.Compare(a, b))
	})
	for _, key := range keys {
		if total <= size {
			break
		}
		delete(entries, key)
		total -= costs[key]
	}
	return true
}

// costOf returns how many bytes a text takes by its entropy, whatever else is like it.
func costOf(text string) float64 {
	var counts [256]int
	for i := range len(text) {
		counts[text[i]]++
	}
	bits := 0.0
	for _, count := range counts {
		if count > 0 {
			bits -= float64(count) * math.Log2(float64(count)/float64(len(text)))
		}
	}
	return bits / 8
}
