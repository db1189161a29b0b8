package zookeeper

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrAuthRequired means that the server serves no session without authentication.
var ErrAuthRequired = errors.New("the server requires authentication")

// ErrQuota means that a quota of the server is used up.
var ErrQuota = errors.New("a quota is exceeded")

// A serverCode is an error of the protocol that the library does not know; source:
// org.apache.zookeeper.KeeperException of 3.4 to 3.9.
type serverCode struct {
	name, text string
	is         error // what it is to callers; nil: nothing
	refused    bool  // a retry does not help
}

func serverCodes() map[int]serverCode {
	return map[int]serverCode{
		-1:   {name: "SYSTEMERROR", text: "the server failed; its log says why"},
		-2:   {name: "RUNTIMEINCONSISTENCY", text: "the server found an inconsistency, or did not try it after another operation failed"},
		-3:   {name: "DATAINCONSISTENCY", text: "the server found an inconsistency of its data; its log says which"},
		-5:   {name: "MARSHALLINGERROR", text: "the server could not read the request; its jute.maxbuffer may be too small", refused: true},
		-6:   {name: "UNIMPLEMENTED", text: "the server does not know the operation; it is older than 3.4, or a part of it is disabled", refused: true},
		-7:   {name: "OPERATIONTIMEOUT", text: "the server took too long"},
		-12:  {name: "UNKNOWNSESSION", text: "the server does not know the session"},
		-13:  {name: "NEWCONFIGNOQUORUM", text: "the ensemble is being reconfigured"},
		-14:  {name: "RECONFIGINPROGRESS", text: "the ensemble is being reconfigured"},
		-119: {name: "NOTREADONLY", text: "the server is read-only, because it has lost its quorum"},
		-120: {name: "EPHEMERALONLOCALSESSION", text: "the session is local; turn localSessionsUpgradingEnabled on, or localSessionsEnabled off", refused: true},
		-121: {name: "NOWATCHER", text: "the server has no such watch"},
		-122: {name: "REQUESTTIMEOUT", text: "the ensemble took too long"},
		-124: {name: "SESSIONCLOSEDREQUIRESASLAUTH", is: ErrAuthRequired, refused: true},
		-125: {
			name: "QUOTAEXCEEDED", text: "raise that of the node or of one above it by setquota, which listquota shows, or turn zookeeper.enforceQuota off",
			is: ErrQuota, refused: true,
		},
		-127: {name: "THROTTLEDOP", text: "the server is overloaded, and throttles"},
	}
}

// authText says what to do about ErrAuthRequired, with a user or without one.
func authText(user string) string {
	if user == "" {
		return "set user and passwordFile, if its enforce.auth.schemes has digest; the bridge has no SASL"
	}
	return "it does not accept digest, and the bridge has no SASL: add digest to its enforce.auth.schemes, or turn zookeeper.sessionRequireClientSASLAuth off"
}

// serverError names an error of the protocol that the library reports by its number
// alone; nil if it is none.
func serverError(err error, user string) error {
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	n, _ := strconv.Atoi(text)
	if !ok || n == 0 {
		return nil
	}
	c, ok := serverCodes()[n]
	if !ok {
		return fmt.Errorf("zookeeper: the server answers with code %d, which ZooKeeper 3.4 to 3.9 do not have", n)
	}
	if errors.Is(c.is, ErrAuthRequired) {
		c.text = authText(user)
	}
	out := fmt.Errorf("zookeeper: %s (%d): %s", c.name, n, c.text)
	if c.is != nil {
		out = fmt.Errorf("zookeeper: %s (%d): %w: %s", c.name, n, c.is, c.text)
	}
	if c.refused {
		out = fmt.Errorf("%w: %w", registry.ErrRefused, out)
	}
	return out
}
