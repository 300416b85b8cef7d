// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig/validation"
)

// fields are the types of the fields of each object of the API, by their names. They are looked up once: a document may have
// thousands of objects.
var fields = map[reflect.Type]map[string]reflect.Type{}

var configType = reflect.TypeFor[v1alpha1.MachinePreservationConfig]()

func init() { addFields(configType) }

func addFields(of reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		addFields(of.Elem())
	case reflect.Struct:
		fields[of] = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields[of][name] = f.Type
				addFields(f.Type)
			}
		}
	}
}

// checkConfig returns what is wrong with a JSON document for it to become a MachinePreservationConfig, as far as there is not
// Enough.
func checkConfig(document any, fldPath *field.Path) field.ErrorList {
	object, ok := document.(map[string]any)
	if !ok {
		return check(document, configType, fldPath)
	}
	var allErrs field.ErrorList
	for _, of := range []struct{ name, valid string }{
		{"apiVersion", v1alpha1.SchemeGroupVersion.String()},
		{"kind", "MachinePreservationConfig"},
	} {
		switch text, isText := object[of.name].(string); {
		case object[of.name] == nil:
			allErrs = append(allErrs, field.Required(fldPath.Child(of.name), fmt.Sprintf("must be %q", of.valid)))
		case isText && text != of.valid:
			allErrs = append(allErrs, field.NotSupported(fldPath.Child(of.name), text, []string{of.valid}))
		}
	}
	return append(allErrs, check(document, configType, fldPath)...)
}

// check returns what is wrong with a value for it to become one of a type of the API. What it says is valid is what is so for
// all fields of the type, which can be less than what can be decoded.
func check(value any, to reflect.Type, fldPath *field.Path) field.ErrorList {
	var (
		text, isText = value.(string)
		_, isBool    = value.(bool)
		ok           bool
		must         string
	)
	switch to {
	case reflect.TypeFor[metav1.Duration]():
		_, err := time.ParseDuration(text)
		ok, must = isText && err == nil, `must be a positive duration with units, for example "72h" or "90m"`
	case reflect.TypeFor[intstr.IntOrString]():
		ok, must = isText || isNumber(value), fmt.Sprintf(`must be a whole number between 0 and %d, or a percentage from "0%%" to "100%%"`, math.MaxInt32)
	case reflect.TypeFor[v1alpha1.AutomaticPowerCycle]():
		ok, must = isBool || value == string(v1alpha1.AutomaticDryRun), "must be "+v1alpha1.ValidAutomatic
	default:
		switch to.Kind() {
		case reflect.Pointer:
			return check(value, to.Elem(), fldPath)
		case reflect.Struct:
			return checkObject(value, to, fldPath)
		case reflect.Slice:
			return checkList(value, to.Elem(), fldPath)
		case reflect.String:
			ok, must = isText, "must be a string"
		case reflect.Bool:
			ok, must = isBool, "must be true or false"
		case reflect.Int32:
			ok, must = isNumber(value), fmt.Sprintf("must be a whole number between 0 and %d", math.MaxInt32)
		default:
			ok = true // the decoder says what is wrong with it
		}
	}
	if ok {
		return nil
	}
	return invalid(value, fldPath, must)
}

// checkObject checks the fields of an object. A null is as good as an absent field.
func checkObject(value any, to reflect.Type, fldPath *field.Path) field.ErrorList {
	object, ok := value.(map[string]any)
	if !ok {
		return invalid(value, fldPath, "must be an object")
	}

	known := fields[to]
	var allErrs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if validation.Enough(allErrs) {
			break
		}
		child := fldPath.Child(name)
		if to, ok := known[name]; !ok {
			valid := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			allErrs = append(allErrs, invalid(object[name], child, "unknown field, valid fields are "+valid)...)
		} else if object[name] != nil {
			allErrs = append(allErrs, check(object[name], to, child)...)
		}
	}
	return allErrs
}

func checkList(value any, to reflect.Type, fldPath *field.Path) field.ErrorList {
	items, ok := value.([]any)
	if !ok {
		return invalid(value, fldPath, "must be a list")
	}

	var allErrs field.ErrorList
	for i, item := range items {
		if validation.Enough(allErrs) {
			break
		}
		allErrs = append(allErrs, check(item, to, fldPath.Index(i))...)
	}
	return allErrs
}

func isNumber(value any) bool {
	number, ok := value.(float64)
	return ok && number == math.Trunc(number) && number >= math.MinInt32 && number <= math.MaxInt32
}

// invalid shows the value as it was written, not as Go prints it.
func invalid(value any, fldPath *field.Path, detail string) field.ErrorList {
	if raw, err := json.Marshal(value); err == nil {
		value = json.RawMessage(raw)
	}
	return field.ErrorList{field.Invalid(fldPath, value, detail)}
}
