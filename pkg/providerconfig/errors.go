// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig/validation"
)

// Errors go into the status of Extensions and Shoots, and into Events. Of what comes from the input, as many bytes are
// shown as tell one value from another; of what is valid, the names of some dozens of worker pools.
const (
	maxValue  = 128
	maxDetail = 1024
)

// aggregate returns one error for the first errors of a list, nil if there are none.
func aggregate(allErrs field.ErrorList, fldPath *field.Path) error {
	if validation.Enough(allErrs) {
		detail := fmt.Sprintf("there are more than these %d errors", validation.MaxErrors)
		allErrs = append(allErrs[:validation.MaxErrors], field.Invalid(fldPath, field.OmitValueType{}, detail))
	}
	for _, err := range allErrs {
		err.Field, err.Detail = cut(err.Field, 2*maxValue), cut(err.Detail, maxDetail)
		switch value := err.BadValue.(type) {
		case string:
			err.BadValue = cut(value, maxValue)
		case json.RawMessage:
			if len(value) > maxValue {
				err.BadValue = cut(string(value), maxValue)
			}
		}
	}
	return allErrs.ToAggregate()
}

// cutError returns an error about a whole configuration. Those of decoders contain values as they are written.
func cutError(err error, fldPath *field.Path) error {
	return fmt.Errorf("%s: %s", fldPath, cut(err.Error(), maxDetail))
}

func cut(text string, size int) string {
	if len(text) > size {
		return strings.ToValidUTF8(text[:size-3], "") + "..."
	}
	return text
}
