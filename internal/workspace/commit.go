package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CommitRequest is what a run brings back.
type CommitRequest struct {
	Mission string
	Launch  int
	Phase   string
	Run     string // unique to the run: results are committed once for it
	Parent  string // the commit the run started from
	TreeIn  string // the tree that was injected

	Parts   []Part // one for each machine
	Partial string // why the run was ended early; empty: it was not
	Subject string // the commit's first line
	Author  Person
	When    time.Time // of author and committer, so that a repeated commit has the same id
	// Admit is asked just before a branch is moved, and its error keeps that from
	// happening; nil: nobody is asked. It is not asked of a commit that was made.
	Admit func() error
}

// Part is what one machine of a run brings back. All of them started from the
// same files.
type Part struct {
	Agent   string    // the machine's name, of several
	Tar     io.Reader // changed files
	SHA256  string    // of Tar, hex; empty: not checked
	Deleted []string  // slash-separated paths; what is not there is not missed
}

// CommitResult is the commit of a run.
type CommitResult struct {
	Commit  string
	Tree    string
	Changed bool // the tree differs from the parent's
	Stat    Stat
}

// Stat counts what a commit changed. Binary files have no lines.
type Stat struct {
	Files      int
	Insertions int
	Deletions  int
}

// Commit checks the results of a run, commits them onto Parent and moves the
// launch's branch, if the branch is still at Parent. A run that changed nothing
// leaves an empty commit. A run that was committed before gets that commit, and
// its results are not read. The parts of a run with several machines are merged;
// when they contradict each other, nothing is committed and the error has the
// code [ResultsConflict]. When the branch has moved on without this run the
// error is a [*Superseded]; on every error the branch is as it was.
func (g *Gateway) Commit(ctx context.Context, r CommitRequest) (CommitResult, error) {
	if err := r.check(g.limits); err != nil {
		return CommitResult{}, err
	}
	repo, checkout, err := g.openCheckout(ctx, r.Mission, r.Launch)
	if err != nil {
		return CommitResult{}, err
	}
	if checkout.Head != r.Parent {
		return committed(ctx, repo, checkout, r)
	}
	result, err := g.makeCommit(ctx, repo, r)
	if err != nil {
		return CommitResult{}, err
	}
	if err := r.admitted(); err != nil {
		return CommitResult{}, err
	}
	if err := g.moveBranch(ctx, repo, r, result.Commit); err != nil {
		now, readErr := readCheckout(ctx, repo, r.Mission, r.Launch)
		if readErr == nil && now.Head != r.Parent {
			return committed(ctx, repo, now, r)
		}
		return CommitResult{}, fmt.Errorf("moving branch %s: %w", checkout.Branch, err)
	}
	return result, nil
}

// Committed returns the commit that a run made earlier, and whether there is one:
// what [Gateway.Commit] would return without reading any results. When the branch
// has moved on without the run the error is a [*Superseded].
func (g *Gateway) Committed(ctx context.Context, r CommitRequest) (CommitResult, bool, error) {
	if err := r.check(g.limits); err != nil {
		return CommitResult{}, false, err
	}
	repo, checkout, err := g.openCheckout(ctx, r.Mission, r.Launch)
	if err != nil || checkout.Head == r.Parent {
		return CommitResult{}, false, err
	}
	result, err := committed(ctx, repo, checkout, r)
	return result, err == nil, err
}

func (r CommitRequest) admitted() error {
	if r.Admit == nil {
		return nil
	}
	return r.Admit()
}

// trailerValue is what may stand in a trailer: one word.
var trailerValue = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._:/]{0,254}$`)

func (r CommitRequest) check(limits Limits) error {
	for name, value := range map[string]string{"phase": r.Phase, "run": r.Run, "tree": r.TreeIn} {
		if !trailerValue.MatchString(value) {
			return fmt.Errorf("commit of mission %s: %q cannot be the %s of a commit", r.Mission, value, name)
		}
	}
	if !isCommit(r.Parent) {
		return refuse(BadRef, "%q is not a full commit id", r.Parent)
	}
	for _, part := range r.Parts {
		if part.Agent != "" && !trailerValue.MatchString(part.Agent) {
			return fmt.Errorf("commit of mission %s: %q cannot be the agent of a commit", r.Mission, part.Agent)
		}
	}
	return deletions(r.Parts, limits)
}

func (r CommitRequest) message() string {
	text := fmt.Sprintf("%s\n\nMission: %s\nPhase: %s\nRun: %s\nTree-In: %s\n", plain(r.Subject), r.Mission, r.Phase, r.Run, r.TreeIn)
	for _, part := range r.Parts {
		if part.Agent != "" {
			text += "Agent: " + part.Agent + "\n"
		}
	}
	if r.Partial != "" {
		text += "Partial: " + plain(r.Partial) + "\n"
	}
	return text
}

// committed returns the commit this run made earlier, or says who was faster.
func committed(ctx context.Context, repo git, checkout Checkout, r CommitRequest) (CommitResult, error) {
	infos, err := log(ctx, repo, checkout)
	if err != nil {
		return CommitResult{}, err
	}
	for _, info := range infos {
		if info.Run == r.Run {
			return describe(ctx, repo, info.Commit)
		}
	}
	return CommitResult{}, &Superseded{Branch: checkout.Branch, Run: r.Run, Expected: r.Parent, Actual: checkout.Head}
}

// makeCommit makes the commit and describes it. No branch knows it yet.
func (g *Gateway) makeCommit(ctx context.Context, repo git, r CommitRequest) (CommitResult, error) {
	commit, err := g.importResults(ctx, repo, r)
	if err != nil {
		return CommitResult{}, err
	}
	return describe(ctx, repo, commit)
}

// importResults makes the commit. No branch knows it yet.
func (g *Gateway) importResults(ctx context.Context, repo git, r CommitRequest) (string, error) {
	s, err := newScratch(g.scratches())
	if err != nil {
		return "", err
	}
	defer s.remove()
	spool, err := s.create("spool")
	if err != nil {
		return "", fmt.Errorf("spool of run %s: %w", r.Run, err)
	}
	defer spool.Close()
	files, deleted, err := g.receiveParts(ctx, repo, r, spool)
	if err != nil {
		return "", resultsError(r, err)
	}
	commit, err := repo.importCommit(ctx, s.ref(), func(i *importer) error {
		i.commit(s.ref(), r.Author, r.When, r.message(), r.Parent)
		for _, path := range deleted {
			i.delete(path)
		}
		for _, f := range files {
			i.file(f.path, f.mode, io.NewSectionReader(spool, f.offset, f.size), f.size)
		}
		return nil
	})
	if err != nil {
		return "", resultsError(r, err)
	}
	return commit, nil
}

// receiveParts reads the parts of a run into the spool and merges them.
func (g *Gateway) receiveParts(ctx context.Context, repo git, r CommitRequest, spool *os.File) (files []result, deleted []string, err error) {
	in := &intake{limits: g.limits, spool: spool, identify: len(r.Parts) > 1}
	var changes []changes
	for _, part := range r.Parts {
		files, err := in.receive(part.Tar, part.SHA256)
		if err != nil {
			return nil, nil, ofAgent(part.Agent, err)
		}
		changes = append(changes, newChanges(part, files))
	}
	if len(changes) == 1 {
		return changes[0].files, changes[0].deleted, nil
	}
	base, err := baseFiles(ctx, repo, r.Parent)
	if err != nil {
		return nil, nil, err
	}
	return merge(base, changes)
}

// ofAgent says whose results were refused.
func ofAgent(agent string, err error) error {
	var refused *Refused
	if agent == "" || !errors.As(err, &refused) {
		return err
	}
	return &Refused{Code: refused.Code, Message: "agent " + agent + ": " + refused.Message}
}

func resultsError(r CommitRequest, err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return refused
	}
	return fmt.Errorf("results of run %s: %w", r.Run, err)
}

// moveBranch sets the branch from the parent to the commit, or fails.
func (g *Gateway) moveBranch(ctx context.Context, repo git, r CommitRequest, commit string) error {
	move := func() error {
		_, err := repo.output(ctx, "update-ref", branchRef(r.Mission, r.Launch), commit, r.Parent)
		return err
	}
	err := move()
	var failure *gitError
	if errors.As(err, &failure) && failure.says(".lock': File exists") {
		if sweepErr := g.sweepRepository(g.directory(r.Mission)); sweepErr == nil {
			return move()
		}
	}
	return err
}

// describe reads a commit's tree and counts its changes.
func describe(ctx context.Context, repo git, commit string) (CommitResult, error) {
	out, err := repo.slowly().output(ctx, "diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--numstat", "--always", "--format=%T", commit, "--")
	if err != nil {
		return CommitResult{}, fmt.Errorf("commit %.12s: %w", commit, err)
	}
	tree, changes, _ := strings.Cut(out, "\n")
	stat := parseNumstat(changes)
	return CommitResult{Commit: commit, Tree: tree, Changed: stat.Files > 0, Stat: stat}, nil
}

// parseNumstat adds up what git says of each file.
func parseNumstat(text string) Stat {
	var stat Stat
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, "\t", 3)
		if len(fields) != 3 {
			continue
		}
		stat.Files++
		stat.Insertions += lines(fields[0])
		stat.Deletions += lines(fields[1])
	}
	return stat
}

// lines reads a number of lines, which is a dash for a binary file.
func lines(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
