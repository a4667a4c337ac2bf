package render

import (
	"fmt"
	"strings"

	"tidewait/internal/api"
	"tidewait/internal/columns"
	"tidewait/internal/ledger"
	"tidewait/internal/wadm"
)

// appStyle holds the colour of every status of applications that has one.
var appStyle = map[wadm.StatusType]style{
	wadm.Deployed: green, wadm.Reconciling: cyan, wadm.Waiting: yellow,
	wadm.Failed: red, wadm.Unhealthy: red, wadm.Undeployed: dim,
}

func appStatusCell(t wadm.StatusType) cell { return cell{text: Clean(string(t)), style: appStyle[t]} }

// Applications returns a lattice's applications as a table, in the order given.
func (o Options) Applications(lattice string, apps []wadm.Summary) string {
	if len(apps) == 0 {
		return "no applications in lattice " + Clean(lattice) + "\n"
	}
	rows := make([][]cell, len(apps))
	for i, a := range apps {
		info := a.DetailedStatus.Status
		since := dash
		if info.Since != nil {
			since = text(o.moment(*info.Since))
		}
		rows[i] = []cell{
			text(a.Name),
			versionCell(a.Version),
			optionalVersion(a.DeployedVersion),
			appStatusCell(info.Type),
			since,
			textOrDash(o.shortWhy(info.Message)),
			optionalText(a.Description),
		}
	}
	return o.table([]string{"NAME", "LATEST", "DEPLOYED", "STATUS", "SINCE", "WHY", "DESCRIPTION"}, rows)
}

// whyColumns bounds a message that is not the last column of a terminal.
const whyColumns = 60

func (o Options) shortWhy(message string) string {
	if o.Width == 0 {
		return message
	}
	return columns.Cut(Clean(message), whyColumns)
}

// versionCell shows a version; an empty one is a version like any other.
func versionCell(version string) cell {
	if version == "" {
		return text(`""`)
	}
	return text(version)
}

func optionalVersion(version *string) cell {
	if version == nil {
		return dash
	}
	return versionCell(*version)
}

func optionalText(s *string) cell {
	if s == nil {
		return dash
	}
	return textOrDash(*s)
}

// ApplicationChanges returns a line for each application that came, went,
// or changed its versions or its status between two lists.
func (o Options) ApplicationChanges(before, after []wadm.Summary) []string {
	var lines []string
	add := func(name, rest string) {
		lines = append(lines, o.clock(o.Now)+"  "+Clean(name+" "+rest))
	}
	old, current := map[string]wadm.Summary{}, map[string]bool{}
	for _, a := range before {
		old[a.Name] = a
	}
	for _, a := range after {
		current[a.Name] = true
		was, known := old[a.Name]
		switch {
		case !known:
			add(a.Name, "is "+StatusText(a.DetailedStatus.Status)+versions(a))
		case versions(was) != versions(a):
			add(a.Name, "is now "+StatusText(a.DetailedStatus.Status)+versions(a))
		case SameStatus(was.DetailedStatus.Status, a.DetailedStatus.Status):
		default:
			add(a.Name, "is now "+StatusText(a.DetailedStatus.Status))
		}
	}
	for _, a := range before {
		if !current[a.Name] {
			add(a.Name, "is deleted")
		}
	}
	return lines
}

func versions(a wadm.Summary) string {
	latest := ", latest version " + versionCell(a.Version).text
	if a.DeployedVersion == nil {
		return latest + ", none deployed"
	}
	return latest + ", deployed " + versionCell(*a.DeployedVersion).text
}

// SameStatus reports whether two statuses read the same to a person.
func SameStatus(a, b wadm.StatusInfo) bool {
	return a.Type == b.Type && a.Message == b.Message && a.Reason == b.Reason
}

// StatusText is a status in one line: "waiting: no host of lattice ...".
func StatusText(s wadm.StatusInfo) string {
	text := Clean(string(s.Type))
	if s.Message != "" {
		text += ": " + Clean(s.Message)
	}
	return text
}

// ApplicationStatus returns how an application is: the whole, who did what, and
// each of its scalers. Without a detail, which a server of wadm's has not, it is
// what the status says alone.
func (o Options) ApplicationStatus(lattice, name string, s wadm.Status, detail *api.AppDetail) string {
	wait := appWait(lattice, name, s, detail)
	out := o.applicationTitle(lattice, name, s, wait) + o.applicationState(s, wait)
	if detail != nil {
		for _, a := range detail.Acts {
			out += o.field(o.act(a))
		}
	}
	if s.Trimmed {
		out += o.field("scalers", "left out: with them the reply would have been too large")
	}
	if len(s.Scalers) > 0 {
		out += "\n" + o.scalers(s.Scalers)
	}
	return out
}

func (o Options) applicationTitle(lattice, name string, s wadm.Status, w *api.Wait) string {
	info := s.Status
	out := o.paint(bold, "application "+Clean(name)) + " in lattice " + Clean(lattice) + "   " + o.paint(appStyle[info.Type], Clean(string(info.Type)))
	if w != nil {
		out += " · " + o.paint(yellow, WaitingFor(*w)) + "   " + o.elapsed(*w)
	}
	return out + "\n"
}

// applicationState is why an application is as it is.
func (o Options) applicationState(s wadm.Status, w *api.Wait) string {
	info := s.Status
	if w != nil {
		return o.waitFields(*w)
	}
	out := ""
	if why := failure(info.Reason, info.Message); why != "" {
		out += o.field("why", why)
	}
	if info.Since != nil {
		out += o.field("since", o.moment(*info.Since))
	}
	return out
}

// appWait is the wait of an application: the one on record, or what its status
// says of it; nil: it does not wait.
func appWait(lattice, name string, s wadm.Status, detail *api.AppDetail) *api.Wait {
	info := s.Status
	var w api.Wait
	switch {
	case detail != nil && detail.Wait != nil:
		w = *detail.Wait
	case info.Since != nil && ledger.KindOf(info.Reason) != "":
		w = api.Wait{
			Kind: ledger.KindOf(info.Reason), Code: info.Reason, Reason: info.Message, Since: *info.Since,
			Lattice: lattice, Application: name,
		}
	default:
		return nil
	}
	if w.Code == info.Reason && w.Attempts == 0 {
		w.Attempts, w.NextCheck = info.Attempt, info.NextAttempt
	}
	return &w
}

func (o Options) nextTry(info wadm.StatusInfo) string {
	var parts []string
	if info.Attempt > 0 {
		parts = append(parts, fmt.Sprintf("%d so far", info.Attempt))
	}
	if info.NextAttempt != nil {
		parts = append(parts, "next "+o.moment(*info.NextAttempt))
	}
	return strings.Join(parts, ", ")
}

func (o Options) scalers(scalers []wadm.ScalerStatus) string {
	rows := make([][]cell, len(scalers))
	for i, s := range scalers {
		message := s.Status.Message
		if next := o.nextTry(s.Status); next != "" {
			message = strings.TrimPrefix(message+" (tries: "+next+")", " ")
		}
		rows[i] = []cell{text(s.Kind), text(s.Name), appStatusCell(s.Status.Type), textOrDash(message)}
	}
	return o.table([]string{"KIND", "NAME", "STATUS", "MESSAGE"}, rows)
}

// Versions returns an application's versions, in the order given, and what people
// did to it.
func (o Options) Versions(versions []wadm.VersionInfo, acts []api.Act) string {
	out := "no versions\n"
	if len(versions) > 0 {
		rows := make([][]cell, len(versions))
		for i, v := range versions {
			deployed := dash
			if v.Deployed {
				deployed = cell{text: "yes", style: green}
			}
			rows[i] = []cell{versionCell(v.Version), deployed}
		}
		out = o.table([]string{"VERSION", "DEPLOYED"}, rows)
	}
	if len(acts) == 0 {
		return out
	}
	rows := make([][]cell, len(acts))
	for i, a := range acts {
		rows[i] = []cell{text(o.moment(a.At)), text(a.Verb), optionalVersion(a.Version), text(a.Who()), textOrDash(a.Note)}
	}
	return out + "\n" + o.table([]string{"WHEN", "ACT", "VERSION", "BY", "NOTE"}, rows)
}

// importStyle holds the colour of what became of a version.
var importStyle = map[string]style{
	api.ImportAdded: green, api.ImportConflict: red, api.ImportRefused: red, api.ImportSkipped: yellow, api.ImportKept: dim,
}

// ImportRow is one version of an import as it is shown.
type ImportRow struct {
	Lattice, Application string
	api.ImportedVersion
	WasDeployed bool // where it comes from
	IsDeployed  bool // here, by the import
}

// Import returns what an import did or would do, a line for each version.
func (o Options) Import(rows []ImportRow) string {
	cells := make([][]cell, len(rows))
	for i, r := range rows {
		deployed := dash
		switch {
		case r.IsDeployed:
			deployed = cell{text: "yes", style: green}
		case r.WasDeployed:
			deployed = cell{text: "not here", style: red}
		}
		cells[i] = []cell{
			text(r.Lattice), text(r.Application), versionCell(r.Version),
			{text: Clean(r.What), style: importStyle[r.What]},
			deployed, textOrDash(r.Why),
		}
	}
	return o.table([]string{"LATTICE", "APPLICATION", "VERSION", "WHAT", "DEPLOYED", "WHY"}, cells)
}
