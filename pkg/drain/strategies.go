// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Strategies help a node that machine-controller-manager drains.
type Strategies struct {
	// Disabled says that nothing is done with any pod (D9).
	Disabled bool
	// Timeout is how long a node has to drain before strategies act, and ExpectedDrainTime how long a drain takes in the best case.
	Timeout, ExpectedDrainTime time.Duration
	// PDBForceDrainTimeout is how long PodDisruptionBudgets are respected beyond the expected time.
	PDBForceDrainTimeout time.Duration
	// IgnoredNamespaces are patterns of CompileNamespacePattern. Nothing is done with pods of namespaces that one matches.
	IgnoredNamespaces []*regexp.Regexp
}

// What the patterns of a shoot owner may take. A few bytes can become a program of megabytes.
const (
	// MaxNamespacePatterns is how many patterns there may be.
	MaxNamespacePatterns = 32

	// maxInstructions is how many instructions the longest program has that package regexp does not run the slow way.
	maxPattern, maxInstructions = 256, 500
)

// CompileNamespacePattern returns a regular expression that matches whole names of namespaces, or an error if the pattern
// is not one by itself or is too large.
func CompileNamespacePattern(pattern string) (*regexp.Regexp, error) {
	parsed, _, err := checkPattern(pattern)
	if err != nil {
		return nil, err
	}
	return regexp.Compile("^(?:" + parsed.String() + ")$") // the pattern itself may have a quotation without an end
}

// CompilePattern returns a regular expression and how many instructions it has, each of which a match may carry out for each
// byte, or an error if the pattern is not one or is too large.
func CompilePattern(pattern string) (*regexp.Regexp, int, error) {
	_, count, err := checkPattern(pattern)
	if err != nil {
		return nil, 0, err
	}
	compiled, err := regexp.Compile(pattern)
	return compiled, count, err
}

func checkPattern(pattern string) (*syntax.Regexp, int, error) {
	if len(pattern) > maxPattern {
		return nil, 0, fmt.Errorf("it has %d bytes, must have at most %d", len(pattern), maxPattern)
	}
	// No name has what classes of Unicode are for, each of which takes kilobytes.
	parsed, err := syntax.Parse(pattern, syntax.Perl&^syntax.UnicodeGroups)
	if err != nil {
		return nil, 0, err
	}
	// What it is compiled to may take megabytes.
	if estimate(parsed) > 10*maxInstructions {
		return nil, 0, errTooMuch
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, err
	}
	if len(program.Inst) > maxInstructions {
		return nil, 0, errTooMuch
	}
	return parsed, len(program.Inst), nil
}

var errTooMuch = errors.New("it repeats too much")

// estimate returns about how many instructions an expression is compiled to, and rather more.
func estimate(expression *syntax.Regexp) int {
	count := 1 + len(expression.Sub)
	if expression.Op == syntax.OpLiteral {
		count = len(expression.Rune)
	}
	for _, sub := range expression.Sub {
		count += estimate(sub)
	}
	if expression.Op == syntax.OpRepeat {
		count *= max(1, expression.Min, expression.Max)
	}
	return count
}

// Ignores says whether nothing is to be done with the pods of a namespace.
func (s *Strategies) Ignores(namespace string) bool {
	return slices.ContainsFunc(s.IgnoredNamespaces, func(pattern *regexp.Regexp) bool { return pattern.MatchString(namespace) })
}

// PDBDeadline returns how long after the start of a drain PodDisruptionBudgets are respected.
func (s *Strategies) PDBDeadline() time.Duration {
	return bounded(s.ExpectedDrainTime) + bounded(s.PDBForceDrainTimeout)
}

// bounded returns a time that can be added to others. Longer ones are not valid, but a sum of them that is negative would have all pods
// deleted at once.
func bounded(t time.Duration) time.Duration { return min(t, v1alpha1.MaxDrainStrategyTime) }

// Policy returns the stages of the strategies (D5), none if they are disabled (D7, D9).
func (s *Strategies) Policy() Policy {
	policy := Policy{Timeout: bounded(s.Timeout)}
	if s.Disabled {
		return policy
	}
	policy.ExpectedDrainTime = bounded(s.ExpectedDrainTime)
	for _, of := range []struct {
		prefix string
		group  Group
		after  time.Duration
	}{
		{"", UnprotectedPods, policy.Timeout},
		{"PDB ", ProtectedPods, s.PDBDeadline()},
	} {
		policy.Stages = append(policy.Stages,
			Stage{Name: of.prefix + "delete", After: of.after, Selector: Selector{of.group, NotTerminating}, Verb: Delete},
			Stage{Name: of.prefix + "finalizers", After: of.after, Selector: Selector{of.group, Finalizing}, Verb: RemoveFinalizers},
			Stage{Name: of.prefix + "stuck", After: of.after, Selector: Selector{of.group, Stuck}, Verb: Delete},
		)
	}
	return policy
}
