import { canonicalJson } from "../canonical.ts";
import type { AuditEntry } from "../entry.ts";

/** Converts audit entries to the lines of a PDF export. */

/** Maximum length of a description of changes, in characters. The other formats contain it in full. */
const MAX_CHANGE_CHARACTERS = 400;
/** Maximum length of a list in characters. A longer list is shortened to its first MAX_LISTED members, if it has more. */
const MAX_LIST_CHARACTERS = 60;
const MAX_LISTED = 3;
/** Depth of members from which a value is shown as one text. */
const MAX_DEPTH = 3;

/** One line of the document: an entry, or an intent together with its outcome. */
export interface PdfEvent {
  /** Time under which the entry is listed, ISO 8601. */
  listedAt: string;
  /** Time of the event, if the entry has a later time. */
  happenedAt: string | undefined;
  /** Time of the intent, or of its event if that is earlier. Undefined if there is no separate intent. */
  startedAt: string | undefined;
  eventType: string;
  actor: string;
  address: string | undefined;
  target: string;
  outcome: "success" | "failure" | "refused" | "no outcome";
  count: number;
  changes: string;
}

/**
 * Converts entries to lines, in the order of the time of the outcome. An intent and its outcome become one line if they have
 * the same request, type and target.
 */
export function eventsOf(entries: readonly AuditEntry[]): PdfEvent[] {
  const intents = new Map<string, AuditEntry[]>();
  const events: { entry: AuditEntry; intent: AuditEntry | undefined }[] = [];
  const keyOf = ({ requestId, eventType, target }: AuditEntry) => JSON.stringify([requestId, eventType, target]);
  for (const entry of entries) {
    const key = keyOf(entry);
    if (entry.outcome === "intent") intents.set(key, [...(intents.get(key) ?? []), entry]);
    else events.push({ entry, intent: intents.get(key)?.shift() });
  }
  const withoutOutcome = [...intents.values()].flat().map((entry) => ({ entry, intent: undefined }));
  return [...events, ...withoutOutcome]
    .sort((a, b) => (a.entry.occurredAt < b.entry.occurredAt ? -1 : a.entry.occurredAt > b.entry.occurredAt ? 1 : 0))
    .map(({ entry, intent }) => eventOf(entry, intent));
}

function eventOf(entry: AuditEntry, intent: AuditEntry | undefined): PdfEvent {
  const { occurredAt, eventType, actor, address, target, outcome, count } = entry;
  return {
    listedAt: occurredAt,
    happenedAt: entry.happenedAt,
    startedAt: intent?.happenedAt ?? intent?.occurredAt,
    eventType,
    actor,
    address,
    target: target ? `${target.type} ${target.id}` : "",
    outcome: outcome === "intent" ? "no outcome" : outcome,
    count,
    changes: changesOf({ ...intent, ...entry }),
  };
}

/** Describes changed fields, then all details. */
function changesOf({ before, after, details }: Pick<AuditEntry, "before" | "after" | "details">): string {
  const [oldValues, newValues] = [flatten(before), flatten(after)];
  const parts: string[] = [];
  for (const name of new Set([...oldValues.keys(), ...newValues.keys()])) {
    const [oldValue, newValue] = [oldValues.get(name), newValues.get(name)];
    if (oldValue === newValue) continue;
    if (before === undefined || after === undefined) parts.push(named(name, newValue ?? `${oldValue} (before)`));
    else parts.push(named(name, `${oldValue ?? "none"} → ${newValue ?? "none"}`));
  }
  for (const [name, value] of flatten(details)) parts.push(named(name, value));
  const text = parts.join("; ");
  if (text.length <= MAX_CHANGE_CHARACTERS) return text;
  return `${text.slice(0, MAX_CHANGE_CHARACTERS)}… (in full in the JSON export)`;
}

const named = (name: string, value: string): string => (name === "" ? value : `${name}: ${value}`);

/** Returns the members of a value by their paths (`a.b`), each as short text. */
function flatten(value: unknown, path = "", depth = 0): Map<string, string> {
  if (value === undefined) return new Map();
  if (typeof value !== "object" || value === null || depth === MAX_DEPTH) return new Map([[path, textOf(value)]]);
  if (Array.isArray(value)) return new Map([[path, listOf(value)]]);
  const members = Object.entries(value).flatMap(([name, member]) => [
    ...flatten(member, path === "" ? name : `${path}.${name}`, depth + 1),
  ]);
  return new Map(members);
}

function listOf(values: unknown[]): string {
  if (values.length === 0) return "none";
  const texts = values.map(textOf);
  const all = texts.join(", ");
  if (all.length <= MAX_LIST_CHARACTERS || texts.length <= MAX_LISTED) return all;
  return `${texts.slice(0, MAX_LISTED).join(", ")} and ${texts.length - MAX_LISTED} more`;
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value === "" ? '""' : value;
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return String(value);
  const members = Object.entries(value).map(
    ([name, member]) => `${name} ${typeof member === "object" ? canonicalJson(member) : textOf(member)}`,
  );
  return Array.isArray(value) ? canonicalJson(value) : members.join(", ");
}
