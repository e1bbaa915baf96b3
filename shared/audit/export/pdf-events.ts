import { canonicalJson } from "../canonical.ts";
import type { AuditEntry } from "../entry.ts";

/** Maximum length of a description of changes, in characters. The other formats contain it in full. */
const MAX_CHANGE_CHARACTERS = 400;
/** Maximum length of a list in characters. A longer list is shortened to its first MAX_LISTED members, if it has more. */
const MAX_LIST_CHARACTERS = 60;
const MAX_LISTED = 3;
const MAX_DEPTH = 3;

/** One line of the document: an entry, or an intent together with its outcome. */
export interface PdfEvent {
  at: string;
  /** Time of the event, if the entry has a later time. */
  happenedAt: string | undefined;
  /** Time of the intent, or of its event if that is earlier. Undefined if there is no separate intent. */
  begunAt: string | undefined;
  eventType: string;
  actor: string;
  address: string | undefined;
  target: string;
  outcome: "success" | "failure" | "refused" | "no outcome";
  count: number;
  changes: string;
}

/** Converts entries to lines in the order of their ends. Joins an outcome with its intent by request, type and target. */
export function eventsOf(entries: readonly AuditEntry[]): PdfEvent[] {
  const open = new Map<string, AuditEntry[]>();
  const events: { entry: AuditEntry; intent: AuditEntry | undefined }[] = [];
  const keyOf = ({ requestId, eventType, target }: AuditEntry) => JSON.stringify([requestId, eventType, target]);
  for (const entry of entries) {
    const key = keyOf(entry);
    if (entry.outcome === "intent") open.set(key, [...(open.get(key) ?? []), entry]);
    else events.push({ entry, intent: open.get(key)?.shift() });
  }
  const unfinished = [...open.values()].flat().map((entry) => ({ entry, intent: undefined }));
  return [...events, ...unfinished]
    .sort((a, b) => (a.entry.occurredAt < b.entry.occurredAt ? -1 : a.entry.occurredAt > b.entry.occurredAt ? 1 : 0))
    .map(({ entry, intent }) => eventOf(entry, intent));
}

function eventOf(entry: AuditEntry, intent: AuditEntry | undefined): PdfEvent {
  const { occurredAt, eventType, actor, address, target, outcome, count } = entry;
  return {
    at: occurredAt,
    happenedAt: entry.happenedAt,
    begunAt: intent?.happenedAt ?? intent?.occurredAt,
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
  const [old, now] = [flat(before), flat(after)];
  const parts: string[] = [];
  for (const name of new Set([...old.keys(), ...now.keys()])) {
    const [was, is] = [old.get(name), now.get(name)];
    if (was === is) continue;
    if (before === undefined || after === undefined) parts.push(named(name, is ?? `${was} (before)`));
    else parts.push(named(name, `${was ?? "none"} → ${is ?? "none"}`));
  }
  for (const [name, value] of flat(details)) parts.push(named(name, value));
  const text = parts.join("; ");
  if (text.length <= MAX_CHANGE_CHARACTERS) return text;
  return `${text.slice(0, MAX_CHANGE_CHARACTERS)}… (in full in the JSON export)`;
}

const named = (name: string, value: string): string => (name === "" ? value : `${name}: ${value}`);

/** Returns the members of a value by their paths, each as short text. */
function flat(value: unknown, path = "", depth = 0): Map<string, string> {
  if (value === undefined) return new Map();
  if (typeof value !== "object" || value === null || depth === MAX_DEPTH) return new Map([[path, textOf(value)]]);
  if (Array.isArray(value)) return new Map([[path, listOf(value)]]);
  const members = Object.entries(value).flatMap(([name, member]) => [
    ...flat(member, path === "" ? name : `${path}.${name}`, depth + 1),
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
