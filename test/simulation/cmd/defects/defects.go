// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

// defect is what the product once did wrong, or would without a rule.
type defect struct {
	// what begins with the rule that it breaks.
	what string
	// file has what is, which becomes something else.
	file, is, becomes string
}

const domain = "pkg/preservation/"

var defects = []defect{
	{"D13: what a cache has of a maintenance is believed", "pkg/maintenance/decide.go", "if !d.MaintenancesLive && slices", "if d.MaintenancesLive && slices"},
	{"D13: what kubectl has written is taken over", "pkg/drain/conditions.go", "c != nil && !isOurs(*c) {", "c == nil && w == \"\" {"},
	{"D13: what is shown of a drain stays", "pkg/drain/conditions.go", "return w.wrote(c) && (", "return w == \"\" && ("},
	{"D13: a drain is shown again each time somebody clears that", "pkg/drain/conditions.go", "	case is != was:\n", "	default:\n"},
	{"H1: a machine is healthy if its phase says so", domain + "ongoing.go",
		"return d.healthy && d.Machine.Status.CurrentStatus.Phase ==", "return d.Machine.Status.CurrentStatus.Phase =="},
	{"H4: what did not fail is kept on", domain + "ongoing.go", "		if d.Target.Provisional {\n			d.end(RuleMargin, WhyDidNotFail)", "		if false {\n			d.end(RuleMargin, WhyDidNotFail)"},
	{"M12: a maintenance keeps for as long as anything else does", domain + "maintenance.go", "return min(g.Maintenance.MaxHoldTime, g.MaxTimeout)", "return g.MaxTimeout"},
	{"M12: each maintenance is counted anew", domain + "maintenance.go", "cmp.Or(d.maintained.Since, since, now)", "cmp.Or(since, now)"},
	{"M13: a maintenance keeps on keeping when it is over", domain + "maintenance.go", "ends      = !goes && !d.mayBeMaintained(g)", "ends      = !goes && d.mayBeMaintained(g)"},
	{"P1: the share has no end", domain + "distribute.go", "case share != nil && p.has(d, *share):", "case share != nil:"},
	{"P1: a machine that fails again asks for no place", domain + "ongoing.go", "d.claims = !d.asked && d.Target.HasPlace(now)", "d.claims = d.asked && d.Target.HasPlace(now)"},
	{"P3: a rolling update does not matter", domain + "decide.go", "d.rolling = g.Rollout && ", "d.rolling = false && "},
	{"P5: a protection that somebody took away is not put back", domain + "steps.go", "		if marks {\n			steps = append(steps, protection(d, now))", "		if marks && (d.Current == nil || d.Current.Failed != d.Target.Failed || d.Current.Provisional) {\n			steps = append(steps, protection(d, now))"},
	{"P6: another timeout goes for what is kept already", domain + "ongoing.go", "if claim.Expiry.IsZero() { // made", "if claim.Expiry.IsZero() || !a.exempt && g.Timeout < 2*time.Hour { // made"},
	{"P6: a validation moves what an operator has edited", domain + "validation.go", "	d.Target.drop(v1alpha1.CauseValidation)\n	if d.Target.worked() {", "	d.Target.drop(v1alpha1.CauseValidation)\n	for i := range d.Target.Claims {\n		d.Target.Claims[i].Expiry = since.Add(90 * time.Minute)\n	}\n	if d.Target.worked() {"},
	{"P8: the hold comes last", domain + "steps.go", "		steps = append(steps, holder.hold(d, timeouts)...)\n		if marks {\n			steps = append(steps, protection(d, now))\n		}", "		if marks {\n			steps = append(steps, protection(d, now))\n		}\n		steps = append(steps, holder.hold(d, timeouts)...)"},
	{"P10: nobody looks when an expiry has come", domain + "decide.go", "			if claim.Expiry.After(now) {\n", "			if claim.Expiry.After(now) && false {\n"},
	{"P11: the sub-phase is that of a healthy machine", domain + "steps.go", "d.Target.annotations(machine.Status.CurrentStatus.Phase)", "d.Target.annotations(\"Running\")"},
	{"P11: nobody is told of what a person asked for", domain + "events.go", "case d.Verdict == Untold:", "case d.Verdict == Untold, d.Rule == RuleBegin:"},
	{"P13: a request makes the time begin anew", domain + "limits.go", "since := d.kept.Since\n	if since.IsZero()", "since := d.kept.Since\n	if since.IsZero() || d.Request.explicit()"},
	{"P13: what is used up never comes back", domain + "limits.go", "if at := d.comesBack(s, g); !at.IsZero() && !now.Before(at) {", "if at := d.comesBack(s, g); !at.IsZero() && false {"},
	{"P15: what fails for a new reason takes no place", domain + "distribute.go", "			missing++\n", ""},
	{"P15: what others show as well is all let go of", domain + "distribute.go", "return shown[reasonOf(d)] < 2", "return shown[reasonOf(d)] < 1"},
	{"P16: only an unready node tells since when it is unhealthy", "pkg/facts/storm.go", "bad != nil {\n", "bad != nil && bad.Type == \"Ready\" {\n"},
	{"P16: a storm takes the places", domain + "decide.go", "case asker == theShare && g.Storm.IsOn() &&", "case asker == theShare && g.Storm.IsOn() && false &&"},
	{"P16: a storm is over with the outage", "pkg/facts/storm.go", "&& now.Before(settled)\n\t}\n\tstatus", "&& false\n\t}\n\tstatus"},
	{"P16: a storm lasts for ever", "pkg/facts/storm.go", "func (s Storm) IsOn() bool { return s.Failing > s.Limit }", "func (s Storm) IsOn() bool { return s.Failing > 0 && s.Limit > 0 }"},
	{"P20: grants of places are not counted", "pkg/sidecar/preservation/places.go", "g.Granted = granted.drop(*g, r.Clock.Now())", "granted.drop(*g, r.Clock.Now())"},
	{"P20: a zone gives places away whatever the others have", domain + "share.go", "		all[i].granted = g.Granted.Has(uid)\n", "		all[i].granted, all[i].apart = false, all[i].elsewhere\n		reserved = 0\n		if all[i].elsewhere {\n			all[i].Target, all[i].Current, all[i].claims = nil, nil, false\n		}\n"},
	{"P17: the account begins after the first preservation", "pkg/sidecar/preservation/hours.go", "h.stored.ResourceVersion != \"\" || h.writing", "h.stored.ResourceVersion == \"\" || h.writing"},
	{"P17: a time is counted twice", "pkg/hours/account.go", "m.Counted = m.Counted.Add(more)", "m.Counted = m.Counted.Add(more / 2)"},
	{"P18: machines are kept on when the machine-hours are used up", domain + "hours.go", "if !g.Hours.areSpent(now) || expiry", "if g.Hours != nil || expiry"},
	{"R2: what is on the node does not count", domain + "request.go", "; ok || templated {", "; ok && templated {"},
	{"R3: what is invalid asks", domain + "request.go", "	default:\n		request.Invalid = value", "	default:\n		request.Value = v1alpha1.RequestNow"},
	{"R3: what is invalid withdraws", domain + "ongoing.go", "return d.Request.Invalid == \"\" && (!d", "return (!d"},
	{"R4: a veto is ignored", domain + "ongoing.go", "case d.Request.Value == v1alpha1.RequestFalse && outliving == nil:", "case d.Request.Value == \"never\" && outliving == nil:"},
	{"R5: a time of its own does not count", domain + "askers.go", "timeout = cmp.Or(d.Request.Timeout, timeout)", "timeout = cmp.Or(timeout, d.Request.Timeout)"},
	{"R6: what operators forbid for a machine is kept", "pkg/facts/pool.go", "return p.Forbidden || isForbidden(machine)", "return p.Forbidden"},
	{"R6: what operators forbid for all is kept", "pkg/facts/pool.go", "return p.Forbidden || isForbidden(machine)", "return isForbidden(machine)"},
	{"T2: asking shortens", domain + "distribute.go", "if free > 0 && now.Before(d.limit) && d.Machine.Spec.ProviderID", "if free > 1000 && now.Before(d.limit) && d.Machine.Spec.ProviderID"},
	{"T3: a request that is withdrawn goes on", domain + "ongoing.go", "case claim != nil && d.withdrawn(*claim):", "case claim != nil && d.withdrawn(*claim) && d.Current == nil:"},
	{"T3: a request that had its time stays", domain + "askers.go", "{ d.ConsumeRequest = true }", "{ d.ConsumeRequest = false }"},
	{"T4: who asks in case is not heard", domain + "decide.go", "	asker := d.wantedBy(g, now)\n", "	asker := d.wantedBy(g, now)\n	if asker != nil && asker.onceFailed && asker != theShare {\n		asker = nil\n	}\n"},
	{"T7: who is healthy again is failed", domain + "ongoing.go", "case d.Target.Failed && d.recovered():", "case d.Target.Failed && d.recovered() && d.Target.has(Claim.exempt):"},
	{"T8: what had its time is kept again", domain + "decide.go", "return d.Current == nil && !d.notes.Spent.Released.IsZero() && !d.recovered()", "return false"},
	{"T9: a lower share lets go of nobody", domain + "distribute.go", "if p.used > share && (", "if p.used > share && false && ("},
	{"T9: the youngest go first", domain + "distribute.go", "cmp.Or(a.Machine.CreationTimestamp.Compare(b.Machine.CreationTimestamp.Time)", "cmp.Or(b.Machine.CreationTimestamp.Compare(a.Machine.CreationTimestamp.Time)"},
	{"T9: who asked goes as well", domain + "distribute.go", "			if !d.asked {\n", "			if d.Target != nil {\n"},
	{"X6: nobody else knows until when a cycle waits", "pkg/remediation/obstacles.go", "	d.to.record.NotBefore = until\n", "	d.to.record.NotBefore = time.Time{}\n"},
	{"X16: nobody looks again once a request would be believed", "pkg/remediation/request.go", "			d.wake(certain)\n", "			_ = certain\n"},
	{"X21: a storm has hosts power-cycled", "pkg/remediation/obstacles.go", "if !d.group.Storm.IsOn() {", "if d.group.Settings != nil {"},
	{"V1: nobody waits for a proof", domain + "group.go", "err == nil && settings != nil {", "err == nil && settings != nil && g.Timeout < 0 {"},
	{"V3: what was reported before the machine came back is a proof", domain + "validation.go", "(!earlier(c.LastHeartbeatTime.Time, now).Before(since) ||", "(c.Type != \"\" ||"},
	{"V4: who is not validated waits for ever", domain + "validation.go", "	case !now.Before(claim.Expiry):\n		why = WhyNotValidated", "	case now.IsZero():\n		why = WhyNotValidated"},
	{"T10: what is left of a deleted machine stays", domain + "steps.go", "		steps = append(cleanNode(d, now), d.forget(dropRecord))", "		return nil"},
}

// defectsOf061 show only beside machine-controller-manager 0.61: a later one acts on requests by itself, and has copied what the Node says to
// the Machine before we look.
var defectsOf061 = []defect{
	{"R4: a veto is deleted", domain + "steps.go", "if annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse {\n		delete", "if annotations[v1alpha1.AnnotationPreserve] != \"\" {\n		delete"},
	{"R5: a time that is too short counts", domain + "request.go", "timeout >= v1alpha1.MinMachinePreserveTimeout && ", "timeout > 0 && "},
}

// defectsOf062 show only beside machine-controller-manager 0.62, which is told on the Machine or the Node what it is to hold, and in the status
// of the Machine until when.
var defectsOf062 = []defect{
	{"P6: what operators edit in the status is not read", domain + "record.go", "inStatus != nil && IsExpiryInStatus(machine) {\n		expiry", "inStatus == nil && IsExpiryInStatus(machine) {\n		expiry"},
	{"P8: what holds a machine moves where it is not seen yet", domain + "preserveexpiry.go", " || d.isUnseen() {", " {"},
}
