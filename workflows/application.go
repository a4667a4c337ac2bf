package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/remedy"
	"tidewait/internal/scaler"
	"tidewait/internal/webui"
)

// Application is the entity of one application: it lives while the application
// is deployed or something is left of it, makes its lattice as it should be, and
// shows what it waits for. What is deployed is the database's to say, and what
// runs is the lattice's: updates and signals only tell it to look again, so they
// may come twice, late or out of order. Whoever closes it by hand sees it again
// after the next sweep.
func Application(ctx workflow.Context, in AppInput) error {
	a := newApplication(ctx, in)
	if err := a.listen(); err != nil {
		return err
	}
	if err := a.goOn(in.Resume.Wait); err != nil {
		return err
	}
	for {
		res, err := a.look()
		if err != nil {
			return err
		}
		a.send(res)
		if res.Clean && a.quiet() {
			return nil
		}
		if err := a.await(res.Retry); err != nil {
			return err
		}
		if a.tooLong() {
			return workflow.NewContinueAsNewError(ctx, api.AppWorkflow, AppInput{See: in.See, Key: in.Key, Resume: a.resume()})
		}
	}
}

// application is the state of one Application workflow.
type application struct {
	ctx workflow.Context
	key ledger.AppKey

	wanted int64 // the newest revision told of
	seen   int64 // the newest revision told of when the latest look began
	wake   workflow.ReceiveChannel
	nudge  workflow.ReceiveChannel
	// numbered counts the nudges of this run, whose names they are recorded by.
	numbered int

	revision int64 // of what was deployed at the latest look
	backoff  scaler.Backoff
	underway []*scaler.Batch // that hosts are being told
	results  []CommandResult // since the latest look
	again    bool            // commands ended in a way that says nothing: look
	waits    waits
}

func newApplication(ctx workflow.Context, in AppInput) *application {
	a := &application{ctx: ctx, key: in.Key, revision: in.Resume.Revision, backoff: in.Resume.Backoff}
	a.waits.header = fmt.Sprintf("application **%s** in lattice %s, account **%s**\n\n", in.Key.Name,
		webui.Link(in.Key.Lattice, api.LatticeWorkflowID(in.Key.Account, in.Key.Lattice)), in.Key.Account)
	a.waits.app = &a.key
	a.waits.of = api.Wait{Account: in.Key.Account, Lattice: in.Key.Lattice, Application: in.Key.Name}
	return a
}

// goOn shows the wait that the workflow was started with, or that an earlier run of
// it showed: the search attributes are there.
func (a *application) goOn(w ledger.AppWait) error {
	if w.Kind == "" {
		return nil
	}
	a.waits.shown = wait{kind: w.Kind, code: w.Code, reason: w.Reason, since: w.Since}
	if w.Kind == ledger.KindObserver {
		return a.waits.declare(a.ctx, a.withoutObserver())
	}
	return a.waits.declare(a.ctx, a.wait(w, w.Next.Sub(workflow.Now(a.ctx))))
}

// listen takes what only says that something changed.
func (a *application) listen() error {
	a.wake = workflow.GetSignalChannelWithOptions(a.ctx, api.SignalWake, workflow.SignalChannelOptions{
		Description: "look at the lattice; sent by its observer when something that concerns the application has changed",
	})
	a.nudge = workflow.GetSignalChannelWithOptions(a.ctx, api.SignalNudge, workflow.SignalChannelOptions{
		Description: `try what has failed again now. Input: {"actor": "you"}`,
	})
	return workflow.SetUpdateHandlerWithOptions(a.ctx, api.UpdateRevise, func(_ workflow.Context, r api.AppRevision) error {
		a.wanted = max(a.wanted, r.Revision)
		return nil
	}, workflow.UpdateHandlerOptions{
		Description: `look at what is deployed; sent by the engine after every deploy, undeploy and delete. Input: {"revision": 1}`,
	})
}

// look compares the application with its lattice and shows how it is.
func (a *application) look() (AssessResult, error) {
	in := AssessInput{
		Key: a.key, Revision: a.revision, Backoff: a.backoff, Pending: a.pending(), Results: a.results,
		Nudged: a.nudge.Len() > 0, Acts: a.takeNudges(),
	}
	drain(a.wake)
	a.seen, a.results, a.again = a.wanted, nil, false
	res, err := a.assess(in)
	if err != nil {
		return res, err
	}
	a.revision, a.backoff = res.Revision, res.Backoff
	return res, a.show(res)
}

// takeNudges empties the channel of nudges and returns who sent them, as far as it
// can be read. Whoever looks at the application records them.
func (a *application) takeNudges() []ledger.Act {
	var acts []ledger.Act
	for said := any(nil); a.nudge.ReceiveAsync(&said); said = nil {
		a.numbered++
		actor, note := readWords(said)
		acts = append(acts, ledger.Act{
			Key:  fmt.Sprintf("%s/%s/%d", workflow.GetInfo(a.ctx).OriginalRunID, ledger.ActNudge, a.numbered),
			Verb: ledger.ActNudge, Actor: actor, Note: note,
		})
	}
	return acts
}

// observerPickup is how long a lattice's observer may take before its absence
// is a wait: longer than it takes another engine to follow one that died or
// froze, and than a busy observer takes.
const observerPickup = 20 * time.Second

func (a *application) assess(in AssessInput) (AssessResult, error) {
	var res AssessResult
	ctx := withAssess(a.ctx, a.key.Account, a.key.Lattice, observerPickup)
	err := workflow.ExecuteActivity(ctx, ActivityAssess, in).Get(ctx, &res)
	if !isUnpicked(err) {
		return res, err
	}
	if err := a.waits.declare(a.ctx, a.withoutObserver()); err != nil {
		return res, err
	}
	ctx = withAssess(a.ctx, a.key.Account, a.key.Lattice, 0)
	err = workflow.ExecuteActivity(ctx, ActivityAssess, in).Get(ctx, &res)
	return res, err
}

func (a *application) withoutObserver() wait {
	return wait{
		kind: ledger.KindObserver, code: ledger.CodeObserverAbsent, since: workflow.Now(a.ctx).Add(-observerPickup),
		reason: fmt.Sprintf("no engine observes lattice %s, so nobody knows what runs there", a.key.Lattice),
		next:   "as soon as an engine observes the lattice",
	}
}

func (a *application) show(res AssessResult) error {
	if res.Wait == nil {
		return a.waits.clear(a.ctx, a.standing(res))
	}
	return a.waits.declare(a.ctx, a.wait(*res.Wait, res.Retry))
}

// wait is what the lattice's observer found that the application waits for. Retry
// is how long it is until something is tried again; not above zero: nothing is.
func (a *application) wait(w ledger.AppWait, retry time.Duration) wait {
	next, special := nextOfCodes[w.Code]
	if !special {
		next = nextOfKinds[w.Kind]
	}
	if retry > 0 {
		next = stamp(workflow.Now(a.ctx).Add(retry)) + ", or when the lattice changes"
	}
	return wait{
		kind: w.Kind, code: w.Code, reason: w.Reason, since: w.Since, next: next,
	}
}

// When a wait is looked at again that no time ends.
var (
	nextOfKinds = map[string]string{
		ledger.KindLattice:    "when a host appears or changes its labels",
		ledger.KindBackoff:    "when the lattice changes",
		ledger.KindDependency: "when it appears",
	}
	// Where that of the kind would be wrong.
	nextOfCodes = map[string]string{
		scaler.CodeHostsTaken:    "when a host appears, or one becomes free",
		scaler.CodeConfigMissing: "when it appears, which is asked again and again",
		scaler.CodeLinkConflict:  "when the other link is gone",
	}
)

// standing is the application's page when it does not wait.
func (a *application) standing(res AssessResult) string {
	now, app := stamp(workflow.Now(a.ctx)), remedy.App(a.key)
	if !res.IsDeployed {
		return fmt.Sprintf("**not deployed**, as of %s\n\n", now) + webui.Item("status", webui.Plain(res.Status)) + webui.YouCan(
			app.Do("see its versions", "history"),
			app.Do("deploy one of them", "deploy", "VERSION"),
		)
	}
	return fmt.Sprintf("**version `%s` is deployed**, as of %s\n\n", res.Deployed, now) + webui.Item("status", webui.Plain(res.Status)) + webui.YouCan(
		app.Do("see each part of it", "status"),
		app.Nudge("compare it with its lattice now"),
		app.Do("end it", "undeploy"),
	)
}

// send tells hosts what to do, each its own batch, all at once.
func (a *application) send(res AssessResult) {
	for _, b := range res.Batches {
		a.underway = append(a.underway, &b)
		workflow.Go(a.ctx, func(ctx workflow.Context) { a.command(ctx, res.Epoch, &b) })
	}
}

func (a *application) command(ctx workflow.Context, epoch int64, b *scaler.Batch) {
	ctx = withCommands(ctx, a.key.Account, a.key.Lattice, summarize(*b))
	var results []CommandResult
	err := workflow.ExecuteActivity(ctx, ActivityCommands, CommandsInput{Key: a.key, Epoch: epoch, Batch: *b}).Get(ctx, &results)
	a.underway = slices.DeleteFunc(a.underway, func(other *scaler.Batch) bool { return other == b })
	a.results = append(a.results, results...)
	// An activity that was lost, or refused because another engine observes the
	// lattice now, says nothing about its commands: the lattice does.
	a.again = a.again || err != nil || len(results) > 0
}

// summarize names a batch for people who look at a timeline.
func summarize(b scaler.Batch) string {
	to := "the lattice"
	if b.Host != "" {
		to = "host " + b.Host[:min(len(b.Host), 12)] + "…"
	}
	text := fmt.Sprintf("%s: %s %s", to, b.Commands[0].Action, b.Commands[0].ID)
	if more := len(b.Commands) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// pending is what hosts are being told, and may have done or not.
func (a *application) pending() []scaler.Command {
	var all []scaler.Command
	for _, b := range a.underway {
		all = append(all, b.Commands...)
	}
	return all
}

// await returns when there is reason to look again.
func (a *application) await(retry time.Duration) error {
	reason := func() bool {
		return a.wanted > a.seen || a.wake.Len() > 0 || a.nudge.Len() > 0 || a.again || a.tooLong()
	}
	if retry <= 0 {
		return workflow.Await(a.ctx, reason)
	}
	_, err := awaitAtMost(a.ctx, retry, "what failed is tried again at "+stamp(workflow.Now(a.ctx).Add(retry)), reason)
	return err
}

// quiet reports whether nothing is under way, and nothing has come that is not
// looked at yet.
func (a *application) quiet() bool { return a.settled() && a.wake.Len() == 0 }

// settled reports whether nothing is under way or has come that another run would
// not see by itself. It looks at once, so that a wake that is left unread is no loss.
func (a *application) settled() bool {
	return a.wanted == a.seen && !a.again && len(a.underway) == 0 && len(a.results) == 0 &&
		a.nudge.Len() == 0 && workflow.AllHandlersFinished(a.ctx)
}

// tooLong reports whether the history is to be begun anew, at a moment when
// nothing is lost by that. One that is woken faster than it looks has such moments.
func (a *application) tooLong() bool {
	return workflow.GetInfo(a.ctx).GetContinueAsNewSuggested() && a.settled()
}

func (a *application) resume() AppResume {
	w := a.waits.shown
	return AppResume{Revision: a.revision, Backoff: a.backoff, Wait: ledger.AppWait{Kind: w.kind, Code: w.code, Reason: w.reason, Since: w.since}}
}

// AppAttributes are the search attributes an application's workflow is started
// with: whose it is, and what it waits for already; nil: nothing. Its first look
// may take a while, since the lattice may have to be observed for it.
func AppAttributes(key ledger.AppKey, waits *ledger.AppWait) temporal.SearchAttributes {
	all := []temporal.SearchAttributeUpdate{AttrLattice.ValueSet(key.Lattice), AttrApp.ValueSet(key.Name)}
	if waits != nil {
		why := wait{kind: waits.Kind, code: waits.Code, reason: waits.Reason}.headline()
		all = append(all, AttrWait.ValueSet(waits.Kind), AttrReason.ValueSet(waits.Code), AttrWhy.ValueSet(why), AttrSince.ValueSet(waits.Since))
	}
	return temporal.NewSearchAttributes(all...)
}

// LatticeAttributes are those of a lattice's workflow.
func LatticeAttributes(lattice string) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(AttrLattice.ValueSet(lattice))
}
