// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"time"

	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Histories makes histories of a seed, without the sidecar if alone.
func Histories(alone bool) *rapid.Generator[History] {
	return rapid.Custom(func(t *rapid.T) History {
		h := History{
			Alone:    alone,
			Replicas: rapid.IntRange(1, 4).Draw(t, "replicas"),
			Share:    rapid.SampledFrom([]int{1, 2, 0, 1}).Draw(t, "share"),
			Timeout:  rapid.SampledFrom([]time.Duration{time.Hour, 4 * time.Hour, 8 * time.Hour}).Draw(t, "timeout"),
			Longest:  rapid.SampledFrom([]time.Duration{0, 0, maxHoldTime, 6 * time.Hour}).Draw(t, "longest"),
		}
		h.PrefersNew = !alone && rapid.Bool().Draw(t, "prefersNew")
		h.ShowsDrains = !alone && rapid.Bool().Draw(t, "showsDrains")
		if !alone && rapid.Bool().Draw(t, "storm") {
			h.Storm = facts.StormLimits{
				MaxFailing:        rapid.SampledFrom([]int32{1, 2, 0}).Draw(t, "maxFailing"),
				MaxFailingPercent: rapid.SampledFrom([]int32{0, 30, 50}).Draw(t, "maxFailingPercent"),
				SettlingTime:      rapid.SampledFrom([]time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute}).Draw(t, "settlingTime"),
			}
		}
		if proof := rapid.SampledFrom([]Proof{"", "", PromptProof, LateProof, NoProof, FlappingProof}).Draw(t, "proof"); !alone {
			h.Proof = proof
		}
		h.Shared = !alone && rapid.IntRange(0, 2).Draw(t, "shared") == 2
		if !alone {
			h.Hours = rapid.SampledFrom([]int{0, 0, 2, 6}).Draw(t, "hours")
		}
		at := warmUp
		for _, next := range rapid.SliceOfN(step(h.Timeout), 1, 20).Draw(t, "events") {
			if at += next.At; at > duration/2-90*time.Minute {
				break
			}
			if _, isRival := next.Action.(Rival); isRival && !h.Shared {
				continue
			}
			h.Events = append(h.Events, Event{at, next.Action})
		}
		return h
	})
}

// step makes an event that happens some time after the one before: at once, soon, when something is due because of it, or any
// time later.
func step(timeout time.Duration) *rapid.Generator[Event] {
	const brief = 30 * time.Minute
	var (
		seconds = func(from, to int) *rapid.Generator[time.Duration] {
			return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Second })
		}
		due = rapid.Custom(func(t *rapid.T) time.Duration {
			// A machine that fails right before, or after, the end of what keeps it has become unhealthy some time before.
			deadline := rapid.SampledFrom([]time.Duration{
				grace + healthTimeout, healthTimeout, creationTimeout, timeout, timeout - grace - healthTimeout, brief, brief - grace - healthTimeout,
			}).Draw(t, "deadline")
			return deadline + seconds(-30, 30).Draw(t, "off by")
		})
		after   = rapid.OneOf(seconds(0, 60), seconds(0, 60), minutes(1, 15), minutes(1, 15), due, minutes(15, 240))
		machine = rapid.IntRange(0, 3)
		process = rapid.SampledFrom([]string{sidecarName, machineControllerName, managerName})
		server  = rapid.SampledFrom([]string{"seed", "shoot"})
		long    = minutes(1, 60)
		own     = rapid.SampledFrom([]time.Duration{0, 0, brief, time.Hour, shortest - time.Second, 400 * time.Hour})
		// What is there more than once happens more often.
		action = rapid.OneOf(
			draw(func(t *rapid.T) Action {
				return Break{machine.Draw(t, "machine"), rapid.SampledFrom([]Condition{Dead, NotReady, Deadlocked}).Draw(t, "condition")}
			}),
			draw(func(t *rapid.T) Action { return Break{machine.Draw(t, "machine"), Dead} }),
			draw(func(t *rapid.T) Action { return Break{machine.Draw(t, "machine"), Dead} }),
			draw(func(t *rapid.T) Action { return Break{machine.Draw(t, "machine"), Dead} }),
			draw(func(t *rapid.T) Action { return Break{machine.Draw(t, "machine"), Healthy} }),
			draw(func(t *rapid.T) Action {
				return Blink{Break{machine.Draw(t, "machine"), Dead}, healthTimeout + grace + seconds(-40, 20).Draw(t, "off by")}
			}),
			draw(func(t *rapid.T) Action {
				return ZoneOutage{rapid.IntRange(2, 4).Draw(t, "machines"), rapid.IntRange(0, 2).Draw(t, "lost"), rapid.OneOf(minutes(2, 60), due).Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action {
				return ZoneOutage{rapid.IntRange(2, 4).Draw(t, "machines"), rapid.IntRange(0, 2).Draw(t, "lost"), minutes(8, 14).Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action { return Cling{machine.Draw(t, "machine"), minutes(30, 480).Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Vanish{machine.Draw(t, "machine")} }),
			rapid.Just(Action(Stillborn{})),
			rapid.Just(Action(Stillborn{})),
			draw(func(t *rapid.T) Action {
				return Ask{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "on node"), rapid.SampledFrom([]string{"now", "when-failed", "when-failed", "false", "", nonsense}).Draw(t, "value"), own.Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action {
				return Ask{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "on node"), "now", own.Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action {
				return Insist{
					Ask{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "on node"), "now", own.Draw(t, "for")},
					rapid.SampledFrom([]time.Duration{25 * time.Minute, 31 * time.Minute, time.Hour + time.Minute, 3 * time.Hour}).Draw(t, "every"), rapid.IntRange(2, 5).Draw(t, "times"),
				}
			}),
			draw(func(t *rapid.T) Action {
				return Maintain{
					machine.Draw(t, "machine"), minutes(5, 300).Draw(t, "for"), rapid.SampledFrom([]time.Duration{0, 5 * time.Minute, 30 * time.Minute}).Draw(t, "off"),
					rapid.Bool().Draw(t, "forgets"), rapid.Bool().Draw(t, "exempt"), rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Hour, 4 * time.Hour}).Draw(t, "again"),
				}
			}),
			draw(func(t *rapid.T) Action {
				return Maintain{
					Machine: machine.Draw(t, "machine"), For: minutes(5, 50).Draw(t, "for"), Off: rapid.SampledFrom([]time.Duration{0, 20 * time.Minute}).Draw(t, "off"),
					Again: rapid.SampledFrom([]time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour}).Draw(t, "again"),
				}
			}),
			draw(func(t *rapid.T) Action {
				return PowerCycle{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "on node"), rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, 5 * time.Minute}).Draw(t, "withdraws")}
			}),
			draw(func(t *rapid.T) Action { return Delete{machine.Draw(t, "machine")} }),
			draw(func(t *rapid.T) Action { return Automate{rapid.Bool().Draw(t, "on")} }),
			draw(func(t *rapid.T) Action { return Stubborn{machine.Draw(t, "machine"), minutes(1, 40).Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Occupy{machine.Draw(t, "machine"), minutes(1, 40).Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Unprotect{machine.Draw(t, "machine")} }),
			draw(func(t *rapid.T) Action { return Scale{rapid.IntRange(1, 5).Draw(t, "replicas")} }),
			draw(func(t *rapid.T) Action {
				return Edit{machine.Draw(t, "machine"), rapid.SampledFrom([]time.Duration{0, 7 * time.Minute, time.Hour, 10 * time.Hour}).Draw(t, "to")}
			}),
			draw(func(t *rapid.T) Action {
				return Forbid{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "all"), rapid.Bool().Draw(t, "not")}
			}),
			draw(func(t *rapid.T) Action { return Share{rapid.IntRange(0, 3).Draw(t, "share")} }),
			draw(func(t *rapid.T) Action { return Timeout{minutes(30, 480).Draw(t, "timeout")} }),
			draw(func(t *rapid.T) Action { return Hibernate{minutes(30, 180).Draw(t, "for")} }),
			rapid.Just(Action(Roll{})),
			rapid.Just(Action(Roll{})),
			draw(func(t *rapid.T) Action {
				return Restart{process.Draw(t, "process"), minutes(0, 20).Draw(t, "downtime")}
			}),
			draw(func(t *rapid.T) Action {
				fault := WriteFault{Skip: rapid.IntRange(0, 5).Draw(t, "skip"), Applied: rapid.Bool().Draw(t, "applied"), Kill: rapid.Bool().Draw(t, "kill")}
				switch {
				case fault.Kill:
					fault.Downtime = minutes(0, 20).Draw(t, "downtime")
				case !fault.Applied:
					fault.Code = rapid.SampledFrom([]int{0, 409, 429, 500, 504}).Draw(t, "code")
				default:
					fault.Late = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 20 * time.Second, time.Minute}).Draw(t, "late")
				}
				return FailWrite{process.Draw(t, "process"), fault}
			}),
			draw(func(t *rapid.T) Action {
				return Outage{process.Draw(t, "process"), server.Draw(t, "server"), long.Draw(t, "for"), rapid.Bool().Draw(t, "hangs")}
			}),
			draw(func(t *rapid.T) Action { return ShootOutage{long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return ShootOutage{long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action {
				return Lag{process.Draw(t, "process"), server.Draw(t, "server"), time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second, long.Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action { return Rival{long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Forget{process.Draw(t, "process"), server.Draw(t, "server")} }),
			draw(func(t *rapid.T) Action { return CloudOutage{long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Freeze{minutes(10, 150).Draw(t, "for")} }),
			draw(func(t *rapid.T) Action {
				return Stick{machine.Draw(t, "machine"), rapid.Bool().Draw(t, "finalizer"), minutes(1, 150).Draw(t, "for")}
			}),
			draw(func(t *rapid.T) Action { return Deny{machine.Draw(t, "machine"), long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action { return Deny{machine.Draw(t, "machine"), long.Draw(t, "for")} }),
			draw(func(t *rapid.T) Action {
				return ReportDrain{machine.Draw(t, "machine"), minutes(1, 30).Draw(t, "for"), minutes(1, 120).Draw(t, "cleared after")}
			}),
			draw(func(t *rapid.T) Action { return ShowDrains{rapid.Bool().Draw(t, "shown")} }),
		)
	)
	return rapid.Custom(func(t *rapid.T) Event { return Event{after.Draw(t, "after"), action.Draw(t, "action")} })
}

func draw(f func(*rapid.T) Action) *rapid.Generator[Action] { return rapid.Custom(f) }

func minutes(from, to int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Minute })
}
