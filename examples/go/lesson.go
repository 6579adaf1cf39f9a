// A lesson with redigo: two users open, renew, one of them falls silent, and who follows the room learns of it.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run lesson.go [redis://localhost:6380] [class]
//
// That is redigo of Debian's golang-github-gomodule-redigo-dev.
//
// redigo speaks RESP2, where maps are flat arrays of field and value.
package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A session with its epoch. A Go string holds any bytes, as ids may.
type session struct {
	id    string
	epoch int64
}

type lesson struct {
	conn         redis.Conn
	room, events string
}

// lease sends LEASE.<verb> of the room. TRYAGAIN asks for the same command again, with the same ids.
func (l *lesson) lease(verb string, args ...interface{}) (interface{}, error) {
	for tries := 50; ; tries-- {
		reply, err := l.conn.Do("LEASE."+verb, append([]interface{}{l.room}, args...)...)
		if head(err) != "TRYAGAIN" || tries == 0 {
			return reply, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// record reads a map: fields by name.
func record(reply interface{}, err error) map[string]interface{} {
	values, err := redis.Values(reply, err)
	must(err)
	fields := map[string]interface{}{}
	for i := 0; i+1 < len(values); i += 2 {
		fields[text(values[i])] = values[i+1]
	}
	return fields
}

func text(value interface{}) string {
	found, err := redis.String(value, nil)
	must(err)
	return found
}

func number(value interface{}) int64 {
	found, err := redis.Int64(value, nil)
	must(err)
	return found
}

func list(value interface{}) []interface{} {
	found, err := redis.Values(value, nil)
	must(err)
	return found
}

// The server makes the session id. With a SESSION of one's own a resent OPEN would be harmless.
func (l *lesson) open(user string, options ...interface{}) session {
	opened := record(l.lease("OPEN", append([]interface{}{user}, options...)...))
	epoch := number(opened["epoch"])
	say("opened", map[string]interface{}{"user": user, "epoch": epoch, "heartbeat_ms": number(opened["heartbeat_ms"])})
	return session{text(opened["session"]), epoch}
}

// renew sends many heartbeats in one write. Each has its own error: one that is refused spoils no other.
func (l *lesson) renew(sessions ...session) {
	for _, s := range sessions {
		must(l.conn.Send("LEASE.RENEW", l.room, s.id, s.epoch, seq()))
	}
	must(l.conn.Flush())
	told := []string{}
	for range sessions {
		reply, err := redis.Values(l.conn.Receive())
		var refused redis.Error
		if errors.As(err, &refused) {
			told = append(told, head(err))
			continue
		}
		must(err)
		told = append(told, text(reply[0]))
	}
	say("renewed", told)
}

// The id is the message's own: sent again, after a timeout say, it stands in the log once.
func (l *lesson) send(s session, messages ...[2]string) {
	told := []interface{}{}
	for _, message := range messages {
		sent := record(l.lease("SEND", s.id, s.epoch, message[0], message[1]))
		told = append(told, []interface{}{text(sent["status"]), number(sent["seq"])})
	}
	say("sent", told)
}

// follow makes a consumer group on the events, from now on, if there is none yet.
func (l *lesson) follow() {
	_, err := l.conn.Do("XGROUP", "CREATE", l.events, "lobby", "$", "MKSTREAM")
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		log.Fatal(err)
	}
}

// awaitRemoval takes events from the group until this session's lease has ended, and confirms each.
func (l *lesson) awaitRemoval(s session) {
	for {
		streams, err := redis.Values(l.conn.Do("XREADGROUP", "GROUP", "lobby", "worker", "BLOCK", 5000, "STREAMS", l.events, ">"))
		if err == redis.ErrNil {
			continue
		}
		must(err)
		for _, entry := range list(list(streams[0])[1]) {
			event := record(list(entry)[1], nil)
			_, err := l.conn.Do("XACK", l.events, "lobby", list(entry)[0])
			must(err)
			if text(event["type"]) == "removed" && text(event["session"]) == s.id {
				say("removed", map[string]interface{}{"user": text(event["user"]), "epoch": s.epoch, "reason": text(event["reason"])})
				return
			}
		}
	}
}

func (l *lesson) roster() {
	told := []interface{}{}
	for _, lease := range list(record(l.lease("ROSTER"))["leases"]) {
		fields := record(lease, nil)
		told = append(told, map[string]interface{}{
			"user": text(fields["user"]), "device": fmt.Sprintf("%x", text(fields["device"])), "seq": number(fields["seq"])})
	}
	say("roster", told)
}

// replay reads page by page; the position is (gen, next). On `resync` a client would call SNAPSHOT.
func (l *lesson) replay(s session) {
	gen, after, told := "*", int64(0), []interface{}{}
	for {
		page := record(l.lease("REPLAY", s.id, s.epoch, gen, after, "COUNT", 1))
		for _, entry := range list(page["entries"]) {
			message := record(list(entry)[1], nil)
			told = append(told, []interface{}{number(list(entry)[0]), fmt.Sprintf("%x", text(message["payload"]))})
		}
		gen, after = text(page["gen"]), number(page["next"])
		if after == number(page["current"]) {
			say("replayed", told)
			return
		}
	}
}

// head is what to decide by: `STALE expired`, `HELD 12000`. The sentence behind the colon is for people.
func head(err error) string {
	if err == nil {
		return ""
	}
	return strings.SplitN(err.Error(), ":", 2)[0]
}

var last int64

// seq rises without being stored: unix time in ns, or one more than the last where the clock stands or is set back.
func seq() int64 {
	last++
	if now := time.Now().UnixNano(); now > last {
		last = now
	}
	return last
}

func say(step string, told interface{}) {
	line, err := json.Marshal(told)
	must(err)
	fmt.Println(step, string(line))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	url, room := "redis://localhost:6380", "class"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		room = os.Args[2]
	}
	conn, err := redis.DialURL(url)
	must(err)
	defer conn.Close()
	// Of a room without a hash tag; of `k{tag}` it is `k{tag}:events`.
	l := &lesson{conn, room, "{" + room + "}:events"}

	// Follow first, so that nothing is missed.
	l.follow()
	device := make([]byte, 16)
	_, err = rand.Read(device)
	must(err)
	device[15] = 0xff // no text
	ann := l.open("ann", "DEVICE", device, "TTL", 10000)
	ben := l.open("ben", "TTL", 1000)
	l.renew(ann, ben, session{"nobody", 1})
	l.send(ann, [2]string{"m1", "hello"}, [2]string{"m2", "\x00\xff"}, [2]string{"m1", "hello"})
	l.awaitRemoval(ben)
	_, err = l.lease("RENEW", ben.id, ben.epoch, seq())
	say("refused", head(err))
	ben = l.open("ben") // STALE expired says: open a new session
	l.roster()
	l.replay(ann)
	left := []string{}
	for _, s := range []session{ann, ben} {
		reply, err := l.lease("LEAVE", s.id, s.epoch)
		must(err)
		left = append(left, text(reply))
	}
	say("left", left)
}
