package zookeeper

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// ErrAuthRequired means that the server requires authentication for a session.
var ErrAuthRequired = errors.New("the server requires authentication")

// ErrQuota means that a quota of the server is exceeded.
var ErrQuota = errors.New("a quota is exceeded")

// A serverCode is an error of the protocol that the library does not know, from
// org.apache.zookeeper.KeeperException of 3.4 to 3.9.
type serverCode struct {
	name, text string
	wraps      error // may be nil
	refused    bool  // a retry does not help
}

func serverCodes() map[int]serverCode {
	return map[int]serverCode{
		-1: {name: "SYSTEMERROR", text: "the server failed; see its log"},
		-2: {
			name: "RUNTIMEINCONSISTENCY",
			text: "the server found an inconsistency, or skipped the operation after another one failed",
		},
		-3: {name: "DATAINCONSISTENCY", text: "the server found an inconsistency of its data; see its log"},
		-5: {
			name: "MARSHALLINGERROR", refused: true,
			text: "the server could not read the request; its jute.maxbuffer may be too small",
		},
		-6: {
			name: "UNIMPLEMENTED", refused: true,
			text: "the server does not know the operation; it is older than 3.4, or a feature is disabled",
		},
		-7:   {name: "OPERATIONTIMEOUT", text: "the server took too long"},
		-12:  {name: "UNKNOWNSESSION", text: "the server does not know the session"},
		-13:  {name: "NEWCONFIGNOQUORUM", text: "the ensemble is being reconfigured"},
		-14:  {name: "RECONFIGINPROGRESS", text: "the ensemble is being reconfigured"},
		-119: {name: "NOTREADONLY", text: "the server is read-only, because it has lost its quorum"},
		-120: {
			name: "EPHEMERALONLOCALSESSION", refused: true,
			text: "the session is local; enable localSessionsUpgradingEnabled, or disable localSessionsEnabled",
		},
		-121: {name: "NOWATCHER", text: "the server has no such watch"},
		-122: {name: "REQUESTTIMEOUT", text: "the ensemble took too long"},
		-124: {name: "SESSIONCLOSEDREQUIRESASLAUTH", wraps: ErrAuthRequired, refused: true},
		-125: {
			name: "QUOTAEXCEEDED", wraps: ErrQuota, refused: true,
			text: "raise the quota of the node or of a node above it by setquota, which listquota shows, " +
				"or disable zookeeper.enforceQuota",
		},
		-127: {name: "THROTTLEDOP", text: "the server is overloaded and throttles requests"},
	}
}

// authText returns the remedy for ErrAuthRequired.
func authText(user string) string {
	if user == "" {
		return "set user and passwordFile if its enforce.auth.schemes contains digest; the bridge does not support SASL"
	}
	return "it does not accept digest, and the bridge does not support SASL: " +
		"add digest to its enforce.auth.schemes, or disable zookeeper.sessionRequireClientSASLAuth"
}

// serverError returns an error of the protocol with its name, if the library reports only
// its number; nil for any other error.
func serverError(err error, user string) error {
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	n, _ := strconv.Atoi(text)
	if !ok || n == 0 {
		return nil
	}
	c, ok := serverCodes()[n]
	if !ok {
		return fmt.Errorf("zookeeper: the server answered with code %d, which is unknown in ZooKeeper 3.4 to 3.9", n)
	}
	if errors.Is(c.wraps, ErrAuthRequired) {
		c.text = authText(user)
	}
	out := fmt.Errorf("zookeeper: %s (%d): %s", c.name, n, c.text)
	if c.wraps != nil {
		out = fmt.Errorf("zookeeper: %s (%d): %w: %s", c.name, n, c.wraps, c.text)
	}
	if c.refused {
		out = fmt.Errorf("%w: %w", registry.ErrRefused, out)
	}
	return out
}
