/** Display texts for entries of the audit log: events, outcomes, targets and details. */
import type { Schemas } from "../../api/client.ts";
import { counted } from "../../parts/plural.ts";

type Entry = Schemas["AuditEntry"];

/** Outcomes of recorded actions. `intent`: recorded before the action, whose result is another entry. */
export const OUTCOMES = {
  success: "Success",
  failure: "Failed",
  refused: "Denied",
  intent: "Started",
} as const satisfies Record<Entry["outcome"], string>;

/** Texts of events whose code is not readable as a sentence. */
const EVENTS: Record<string, string> = {
  "access.breakGlass": "Break-glass administrator signed in",
  "access.refused": "Access denied",
  "apiToken.allEnded": "All API tokens revoked",
  "apiToken.ended": "API token revoked",
  "audit.beginningAdopted": "Start of audit log recorded",
  "audit.indexMended": "Audit log index repair",
  "audit.listed": "Audit log viewed",
  "compliance.mended": "Compliance data repaired",
  "dependencies.valuesRead": "Secret values compared with app settings",
  "devops.configured": "Azure DevOps configured",
  "inventory.mended": "Inventory repaired",
  "rotation.begun": "Rotation started",
  "rotation.secretPublished": "Rotation saved new secret to key vault",
  "rotation.secretPutBack": "Rotation saved old secret again",
  "rotation.secretRemoved": "Client secret deletion by rotation",
  "rotation.secretAdded": "Client secret creation by rotation",
  "scans.mended": "Repair of the list of active scans",
  "scope.changed": "Monitored subscriptions changed",
  "scope.forgotten": "Data of subscriptions no longer monitored deleted",
  "sso.configured": "Single sign-on configured",
  "sso.disabled": "Single sign-on turned off",
  "sso.secretRemoved": "Single sign-on secret deleted",
  "sso.tested": "Single sign-on tested",
  "storage.mended": "Stored data repair",
  "user.bootstrapped": "First administrator created",
  "user.firstPasswordSet": "First password set by the deployer",
  "user.bootstrapReset": "Bootstrap administrator reset",
  "user.identityAllowed": "Single sign-on identity unblocked",
  "user.recoveryCodesReplaced": "Recovery codes replaced",
  "user.secondFactorAdded": "Second factor added",
  "user.secondFactorRemoved": "Second factor removed",
  "user.secondFactorReset": "Second factor reset by an administrator",
  "user.secondFactorStarted": "Adding a second factor started",
  "user.signInRefused": "Sign-in denied",
  "user.signOutRefused": "Sign-out of the identity provider denied",
  "user.signInFailed": "Sign-in failed",
};

/** Returns an event as text. A code without its own text is split into words: "alertRule.created" is "Alert rule created". */
export const eventText = (code: string): string => EVENTS[code] ?? capitalized(wordsOf(code.replace(".", " ")));

/** Returns the target of an entry as text, such as "Vault kv-shop". The target of reads of the audit log is their filter. */
export function targetText({ type, id }: NonNullable<Entry["target"]>): string {
  if (type === "audit")
    return id === "all" ? "Audit log, all entries" : `Audit log, filter ${id.replaceAll("&", ", ")}`;
  const name = id.startsWith("/subscriptions/") ? id.slice(id.lastIndexOf("/") + 1) : id;
  return `${capitalized(wordsOf(type))} ${name}`;
}

/** Returns the details and the changed members as lines. Details without content are omitted. */
export const detailLines = ({ eventType, details, before, after, count }: Entry): string[] => [
  ...(count > 1 ? [`Repeated ${counted(count, "time")}`] : []),
  ...linesOf(details, eventType)
    .filter(({ value }) => value !== "none")
    .map(textOf),
  ...changeLines(before, after, eventType),
];

/**
 * Returns a line per member that differs: "name: old → new". A new object has no state before, so its members are listed, as are
 * those of a deleted object.
 */
function changeLines(before: unknown, after: unknown, eventType: string): string[] {
  const [old, current] = [linesOf(before, eventType), linesOf(after, eventType)];
  if (current.length === 0) return old.map((line) => `before: ${textOf(line)}`);
  if (old.length === 0) return current.filter(({ value }) => value !== "none").map(textOf);
  const labels = new Set([...old, ...current].map(({ label }) => label));
  const valueIn = (lines: Line[], label: string) => lines.find((line) => line.label === label)?.value ?? "none";
  return [...labels].flatMap((label) => {
    const [from, to] = [valueIn(old, label), valueIn(current, label)];
    return from === to ? [] : [`${label}: ${from} → ${to}`];
  });
}

/** A detail as shown: `label: value`. */
interface Line {
  label: string;
  value: string;
}

const textOf = ({ label, value }: Line): string => `${label}: ${value}`;

/** Labels of details by name, or by event and name if the name has different meanings. */
const LABELS: Record<string, string> = {
  // The sign-in created a session or a token.
  "user.signedIn to": "created",
  by: "sign-in method",
  which: "secret",
  back: "restores the old value",
  appId: "application ID",
  keyId: "credential ID",
  oldKeyId: "old credential ID",
  newKeyId: "new credential ID",
  assetId: "asset",
  counts: "changes",
  trigger: "cause",
};

/** Returns a line per member of a details object. The value of `kind` is a code, so it is split into words like a name. */
const linesOf = (members: unknown, eventType: string): Line[] =>
  Object.entries((members ?? {}) as Record<string, unknown>).map(([name, value]) => ({
    label: LABELS[`${eventType} ${name}`] ?? LABELS[name] ?? wordsOf(name),
    value: name === "kind" ? wordsOf(String(value)) : valueText(value, name === "counts"),
  }));

/**
 * Returns a value of any depth as text, "none" if it is empty.
 *
 * @param omitsZeros - Whether the value is an object of counts, shown as "2 secrets" instead of "secrets 2", without zeros.
 */
function valueText(value: unknown, omitsZeros = false): string {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.map((one) => valueText(one)).join(", ") || "none";
  const members = Object.entries(value).filter(([, one]) => !(omitsZeros && one === 0));
  const parts = members.map(([name, one]) =>
    omitsZeros ? `${valueText(one)} ${wordsOf(name)}` : `${wordsOf(name)} ${valueText(one)}`,
  );
  return parts.join(", ") || "none";
}

/** Splits a name such as `alertRule` into lower-case words. */
const wordsOf = (name: string): string =>
  name.replaceAll(/([a-z0-9])([A-Z])/g, (_, end, start) => `${end} ${start.toLowerCase()}`);

/** Returns the text with a capital first letter. */
const capitalized = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
