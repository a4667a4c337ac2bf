package devstack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const (
	postgresUser = "tidewait" // superuser of the cluster
	databaseName = "tidewait"
	// socketPathLimit is what Linux allows for a socket's path, less what
	// Postgres needs for its file name, and some to spare.
	socketPathLimit = 100 - len("/.s.PGSQL.65535.lock")
)

// postgresPrograms is a directory with initdb and postgres.
type postgresPrograms string

func (p postgresPrograms) path(program string) string { return filepath.Join(string(p), program) }

func (p postgresPrograms) complete() bool {
	return isExecutable(p.path("postgres")) && isExecutable(p.path("initdb"))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func findPostgres(dir string) (postgresPrograms, error) {
	if dir != "" {
		if p := postgresPrograms(dir); p.complete() {
			return p, nil
		}
		return "", fmt.Errorf("cannot find initdb and postgres in %s, which dev.postgres_bin names", dir)
	}
	for _, p := range postgresCandidates() {
		if p.complete() {
			return p, nil
		}
	}
	return "", errors.New("cannot find Postgres (looked for initdb and postgres on PATH, in /usr/lib/postgresql/*/bin and in /usr/local/bin): " +
		"run make deps, install the Debian package postgresql, or name the directory with dev.postgres_bin")
}

func postgresCandidates() []postgresPrograms {
	var found []postgresPrograms
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			found = append(found, postgresPrograms(filepath.Dir(real)))
		}
	}
	packaged, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(packaged, func(a, b string) int { return packagedVersion(b) - packagedVersion(a) })
	for _, dir := range packaged {
		found = append(found, postgresPrograms(dir))
	}
	return append(found, "/usr/local/bin")
}

func packagedVersion(bin string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return version
}

// A cluster is the data directory of Postgres and who runs it.
type cluster struct {
	programs postgresPrograms
	data     string
	sockets  string
	port     int
	user     *syscall.Credential // nil: the user of this process
	userName string
	dir      string // of the stack
	progress func(string)
}

func (s *Stack) startPostgres(ctx context.Context, o Options, programs postgresPrograms, port int) error {
	c := &cluster{programs: programs, data: filepath.Join(o.Dir, "postgres"), port: port, dir: o.Dir, progress: o.Progress}
	if err := c.chooseUser(); err != nil {
		return err
	}
	c.sockets = socketDir(o.Dir)
	s.sockets = c.sockets
	s.PostgresURL = c.url(databaseName)
	s.Postgres = &Service{
		name:         Postgres,
		port:         port,
		prepare:      c.prepare,
		command:      c.server,
		ready:        c.ready,
		whenOrphaned: syscall.SIGINT,
	}
	return s.launch(ctx, o, s.Postgres)
}

// url names a database, reached over TCP: any program can, whoever runs it.
func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", postgresUser, loopback(c.port), database)
}

// chooseUser picks who runs Postgres, which refuses to be run by root.
func (c *cluster) chooseUser() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			c.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			c.userName = name
			return nil
		}
	}
	return errors.New("cannot run Postgres: root may not, and there is no user postgres or nobody; add one with useradd --system postgres")
}

// prepare makes what the server needs: the cluster, once, and its sockets' directory.
func (c *cluster) prepare(ctx context.Context) error {
	if err := c.checkReachable(); err != nil {
		return err
	}
	if err := c.create(ctx); err != nil {
		return err
	}
	if err := c.clearLocks(ctx); err != nil {
		return err
	}
	if err := c.makeDir(c.sockets); err != nil {
		return fmt.Errorf("cannot make the directory of Postgres' socket: %w", err)
	}
	return nil
}

// checkReachable finds the directory that keeps another user from the cluster.
func (c *cluster) checkReachable() error {
	if c.user == nil {
		return nil
	}
	for dir := c.dir; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("cannot look at a directory above the stack's: %w", err)
		}
		if !mayEnter(info, c.user) {
			return fmt.Errorf("the user %s, who runs Postgres, cannot reach %s: %s has mode %04o; choose another directory with data_dir, or run chmod o+x %s",
				c.userName, c.data, dir, info.Mode().Perm(), dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func mayEnter(info fs.FileInfo, who *syscall.Credential) bool {
	owner := info.Sys().(*syscall.Stat_t)
	switch {
	case owner.Uid == who.Uid:
		return info.Mode()&0o100 != 0
	case owner.Gid == who.Gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}

// create makes the cluster unless it is there. It appears under its name only
// when it is whole.
func (c *cluster) create(ctx context.Context) error {
	version, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err == nil {
		return c.checkVersion(ctx, strings.TrimSpace(string(version)))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read the Postgres cluster: %w", err)
	}
	c.progress("Creating a Postgres cluster in " + c.data)
	partial := c.data + ".partial"
	if err := errors.Join(os.RemoveAll(partial), c.makeDir(partial)); err != nil {
		return fmt.Errorf("cannot make room for a Postgres cluster: %w", err)
	}
	if out, err := c.run(ctx, "initdb", "--pgdata", partial, "--username", postgresUser,
		"--auth", "trust", "--encoding", "UTF8", "--no-locale"); err != nil {
		return fmt.Errorf("initdb could not create the Postgres cluster (%w): %s", err, lastOf(out))
	}
	if err := os.Rename(partial, c.data); err != nil {
		return fmt.Errorf("cannot put the Postgres cluster in its place: %w", err)
	}
	return nil
}

func (c *cluster) checkVersion(ctx context.Context, have string) error {
	out, err := c.run(ctx, "postgres", "--version")
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", c.programs.path("postgres"), err)
	}
	for word := range strings.FieldsSeq(out) {
		if major, _, _ := strings.Cut(word, "."); major == have {
			return nil
		}
	}
	return fmt.Errorf("%s was made by Postgres %s, and %s is %q: name the right directory with dev.postgres_bin, or remove %s with all it holds",
		c.data, have, c.programs.path("postgres"), strings.TrimSpace(out), c.data)
}

// run runs a program to its end and returns what it printed.
func (c *cluster) run(ctx context.Context, program string, args ...string) (string, error) {
	var out strings.Builder
	cmd := c.program(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	select {
	case <-p.done:
		return out.String(), p.err
	case <-ctx.Done():
		err := send(p.pid, syscall.SIGTERM)
		<-p.done
		return out.String(), errors.Join(ctx.Err(), err)
	}
}

func (c *cluster) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(c.programs.path(name), args...)
	cmd.Dir = "/" // where every user may be
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.user}
	return cmd
}

// server is durable in every setting; what is cheaper than usual is memory.
func (c *cluster) server() *exec.Cmd {
	args := []string{"-D", c.data}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(c.port),
		"unix_socket_directories=" + c.sockets,
		"unix_socket_permissions=0700",
		"cluster_name=tidewait",
		"fsync=on",
		"synchronous_commit=on",
		"shared_buffers=64MB",
		"max_connections=100",
		"huge_pages=off",
		"jit=off",
		"logging_collector=off",
		"log_checkpoints=off",
		"timezone=UTC",
		"log_timezone=UTC",
	} {
		args = append(args, "-c", setting)
	}
	return c.program("postgres", args...)
}

// clearLocks removes the lock files of a Postgres that was killed, and its
// sockets. Postgres only looks whether the pid in them is in use, by whatever
// program.
func (c *cluster) clearLocks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for users := c.usersOfData(); len(users) > 0; users = c.usersOfData() {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("process %d is a Postgres that uses %s and was not started by this stack: end it", users[0], c.data)
		}
	}
	err := errors.Join(os.RemoveAll(c.sockets), os.RemoveAll(filepath.Join(c.data, "postmaster.pid")))
	if err != nil {
		return fmt.Errorf("cannot remove the locks of a Postgres that is gone: %w", err)
	}
	return nil
}

// usersOfData lists the Postgres processes that work in the data directory. Those
// of a killed server end by themselves as soon as they notice.
func (c *cluster) usersOfData() []int {
	var found []int
	for _, pid := range processes() {
		proc := "/proc/" + strconv.Itoa(pid)
		cwd, err := os.Readlink(proc + "/cwd")
		if err != nil || cwd != c.data {
			continue
		}
		if exe, err := os.Readlink(proc + "/exe"); err == nil && strings.HasPrefix(filepath.Base(exe), "postgres") {
			found = append(found, pid)
		}
	}
	return found
}

// socketDir is where the Unix socket goes: inside the stack's directory, or
// where that is too deep, a private one in the temporary directory.
func socketDir(dir string) string {
	inside := filepath.Join(dir, "run", "postgres")
	if len(inside) <= socketPathLimit {
		return inside
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(os.TempDir(), fmt.Sprintf("tidewait-%x", sum[:8]))
}

// makeDir makes a directory that only the user of Postgres can use. One that is
// there already must belong to that user.
func (c *cluster) makeDir(path string) error {
	uid, gid := os.Geteuid(), os.Getegid()
	if c.user != nil {
		uid, gid = int(c.user.Uid), int(c.user.Gid)
	}
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return os.Chown(path, uid, gid)
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != uid {
		return fmt.Errorf("%s is in the way: it is no directory, or belongs to user %d and not to %d; remove it", path, owner, uid)
	}
	return nil
}

// ready connects, and makes the database when it is missing.
func (c *cluster) ready(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, "select exists(select from pg_database where datname = $1)", databaseName).Scan(&there); err != nil || there {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+databaseName)
	return err
}

func lastOf(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
