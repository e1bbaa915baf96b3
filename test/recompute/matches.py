"""Finds the vault secrets that may store an application's client secret, by docs/matching.md."""

import re
from collections import defaultdict

from pages import plain, spans

GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HOUR, MINUTE = 3600, 60
# "whose name ends in `client-id`, … with or without the hyphen"
# A secret with such a name stores an ID, not a secret.
IDENTIFIER = re.compile(r"(?:client|tenant|object|app|application|key)-?id$", re.I)
# Names of tags that contain the ID of an application, such as `client-id`.
APP_TAG = re.compile(r"(?:^|[-_ ])(?:client|app|application)[-_ ]?id$", re.I)


class Matches:
    """The rules of docs/matching.md for the secrets of all vaults but the service's own."""

    def __init__(self, pages, vaults, service_vault):
        self.numbers = pages.numbers("matching.md", "Numbers", "number", "value")
        self.expiry_window = self.numbers["expiry window"] * HOUR
        self.creation_window = self.numbers["creation window"] * MINUTE
        self.generic = set(pages.list_after("matching.md", "Generic words are dropped:"))
        self.environments = set(pages.list_after("matching.md", "otherwise only words for environments:"))
        # Each row names evidence. One piece is enough, or for "`createdTogether` with …" it and one of the others.
        self.rules = [(plain(row["confidence"]), row["evidence"]) for row in pages.table("matching.md", "Confidence")]
        self.secrets = [
            one
            for vault in vaults
            if vault["name"].lower() != service_vault
            for one in vault["objects"]
            if one["type"] == "secret"
        ]
        self.by_vault = defaultdict(dict)
        for one in self.secrets:
            self.by_vault[one["vault"].lower()][one["name"].lower()] = one

    def words(self, name):
        """Returns the words of a name in lower case, without generic ones."""
        parted = re.sub(r"([a-zß-öø-ÿ])([A-ZÀ-ÖØ-Þ])", r"\1-\2", name).lower()
        return [word for word in re.split(r"[^\w]+|_", parted) if word and word not in self.generic]

    def same_name(self, secret, app):
        """Returns whether two names are the same: docs/matching.md, Names."""
        a, b = self.words(secret), self.words(app)
        if not a or not b:
            return False
        if "".join(a) == "".join(b):
            return True
        return all(word in a for word in b) and all(word in self.environments for word in a if word not in b)

    def shares_word(self, secret, app):
        """Returns whether the names share a word: docs/matching.md, Shared words."""
        shortest = self.numbers["shortest shared word"]
        words = [word for word in self.words(app["name"]) if len(word) >= shortest and word not in self.environments]
        names = f"{secret['vault']}/{secret['name']}".lower()
        return not words or any(word in names for word in words)

    def ids(self, secret):
        """Returns the GUIDs in a secret's name, content type and tags, up to the maximum number."""
        texts = [secret["name"], secret["contentType"] or "", *secret["tags"].values()]
        found = dict.fromkeys(guid for text in texts for guid in GUID.findall(text.lower()))
        return list(found)[: int(self.numbers["IDs that are read from one secret's metadata"])]

    def of(self, app):
        """Returns the matches of an application: confidence, evidence and key ID by secret."""
        passwords = {key: one for key, one in app["credentials"].items() if one["kind"] == "secret"}
        newest = sorted(passwords, key=lambda key: -(passwords[key]["expires"] or 0))
        searched = newest[: int(self.numbers["client secrets of an application that are searched for, latest expiry first"])]
        expires_with = lambda secret, one: (
            secret["expires"] is not None and one["expires"] is not None and abs(secret["expires"] - one["expires"]) <= self.expiry_window
        )
        # The secrets in the expiry window of each client secret.
        windows = {key: [s for s in self.secrets if expires_with(s, passwords[key])] for key in searched}
        candidates = {s["id"]: s for found in windows.values() for s in found}
        first = (self.words(app["name"]) or [""])[0]
        if len(first) >= self.numbers["shortest first word for the search by name"] and re.fullmatch("[a-z0-9]+", first):
            candidates |= {s["id"]: s for s in self.secrets if s["name"].lower().startswith(first)}
        own = {app["appId"], app["id"]}
        named = [s for s in self.secrets if own & set(self.ids(s)) or set(searched) & set(self.ids(s))]
        candidates |= {s["id"]: s for s in named}
        # Secrets beside a `<prefix>-client-id` that names the application itself.
        companions = set()
        for s in named:
            prefix = re.fullmatch(r"(.*?)-?client-?id", s["name"], re.I)
            if prefix is None:
                continue
            dash = f"{prefix[1]}-" if prefix[1] else ""
            for end in ("client-secret", "clientsecret", "secret"):
                beside = self.by_vault[s["vault"].lower()].get(f"{dash}{end}".lower())
                if beside:
                    candidates[beside["id"]] = beside
                    if own & set(self.ids(s)):
                        companions.add(beside["id"])
        matches = {}
        for secret in candidates.values():
            if IDENTIFIER.search(secret["name"]):
                continue
            found = self.match(secret, app, passwords, windows, expires_with, secret["id"] in companions)
            if found:
                matches[secret["id"]] = found
        return matches

    def match(self, secret, app, passwords, windows, expires_with, companion):
        """Returns confidence, evidence and key ID. None if the secret is excluded, or nothing fits."""
        own = {app["appId"], app["id"]}
        marks = list(self.marks(secret))
        if any(mark_app not in own for _, mark_app, _ in marks):
            return None
        tagged = [guid for name, text in secret["tags"].items() if APP_TAG.search(name) for guid in [ending_guid(text)] if guid]
        if tagged and not own & set(tagged):
            return None
        evidence = set()
        # Client secrets of the application that marks name. They are clear only if all marks name the same one.
        existing = {key for _, _, key in marks if key in passwords}
        unambiguous = len(existing) == 1 and len({key for _, _, key in marks}) == 1
        if existing and not unambiguous:
            evidence.add("conflict")
        if unambiguous:
            evidence |= {kind for kind, _, _ in marks}
        if own & set(self.ids(secret)):
            evidence.add("appIdTag")
        if companion:
            evidence.add("companion")
        if self.same_name(secret["name"], app["name"]):
            evidence.add("name")
        together = [key for key, one in passwords.items() if expires_with(secret, one)]
        if together:
            only = any(len(windows.get(key, ())) == 1 for key in together)
            evidence.add("expiry" if only else "expirySameDay")
        created = [
            key
            for key, one in passwords.items()
            if secret["created"] is not None and one["starts"] is not None and abs(secret["created"] - one["starts"]) <= self.creation_window
        ]
        if created:
            evidence.add("createdTogether")
        if not evidence:
            return None
        alone = lambda keys: keys[0] if len(keys) == 1 else None
        key = next(iter(existing)) if unambiguous else alone(together) or alone(created) or alone(list(passwords))
        return self.confidence(evidence, self.shares_word(secret, app)), tuple(sorted(evidence)), key

    def confidence(self, evidence, shares_word):
        """Returns the confidence of the first row of docs/matching.md, Confidence, that applies."""
        for confidence, text in self.rules:
            names = set(spans(text))
            if "with" in text:
                main, *others = spans(text)
                if main in evidence and evidence & set(others):
                    return confidence
            elif "if the names share a word" in text:
                if names & evidence and shares_word:
                    return confidence
            elif "any other" in text or names & evidence:
                return confidence
        raise KeyError("docs/matching.md has no rule for any other evidence")

    def marks(self, secret):
        """Returns kind, application and client secret of each mark."""
        for app, key in (("entra-app-id", "entra-key-id"), ("ProviderAddress", "CredentialId")):
            guid = ending_guid(secret["tags"].get(app))
            if guid:
                yield "tag", guid, ending_guid(secret["tags"].get(key))
        parts = (secret["contentType"] or "").lower().split(":")
        if len(parts) >= 3:
            app, key = ending_guid(parts[-2]), ending_guid(parts[-1])
            if app and key:
                yield "contentType", app, key


def ending_guid(text):
    """Returns the GUID at the end of a text."""
    found = GUID.findall((text or "").lower())
    return found[-1] if found and text.lower().endswith(found[-1]) else None
