import { CloudFailure } from "../azure/failure.ts";
import { heldValue } from "./holding.ts";
import { lookAt, placeOf } from "./publications.ts";
import { isWritten } from "./targets.ts";
import type { Turn } from "./turn.ts";

/** What stands against removing the old secret, as sentences; empty when nothing does. */
export async function reasonsAgainstRemoval(turn: Turn): Promise<string[]> {
  try {
    return [...(await fromPlaces(turn)), ...(await fromDirectory(turn)), ...(await fromConsumers(turn))];
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    return [`What holds the new secret can't be seen now: ${error.message} ${error.remedy}`];
  }
}

async function fromPlaces(turn: Turn): Promise<string[]> {
  const { publications } = turn.record;
  const reasons: string[] = [];
  if (!publications.some(({ kind, state }) => kind === "match" && state === "written")) {
    reasons.push("The new secret was handed over and written to no known place: nobody can see whether it is in use.");
  }
  const value = await heldValue(turn);
  for (const publication of publications) {
    if (publication.kind !== "match") continue;
    const { holds } = await lookAt(turn, publication, value);
    if (holds !== "new") reasons.push(`${placeOf(publication)} does not hold the new secret any more.`);
  }
  return reasons;
}

async function fromDirectory(turn: Turn): Promise<string[]> {
  const { world, record } = turn;
  const app = await world.graph.application({ objectId: record.objectId });
  if (app === undefined) return ["The application is not in the directory any more."];
  const reasons: string[] = [];
  if (!app.passwords.some(({ keyId }) => keyId === record.newKeyId)) {
    reasons.push(`The new secret ${record.newKeyId} is not in the directory.`);
  }
  const value = await heldValue(turn);
  const signedIn = value === undefined ? undefined : (await world.signIn(record.appId, value)).kind;
  if (signedIn !== "accepted") reasons.push("The new secret did not sign in just now.");
  const written = new Set(record.publications.map(placeOf));
  for (const target of await world.matches.targetsOf(app, record.oldKeyId)) {
    if (written.has(placeOf(target)) || !(isWritten(target) || target.confidence === "likely")) continue;
    const sure = isWritten(target) ? "holds" : "is likely to hold";
    reasons.push(`${placeOf(target)} ${sure} the old secret and was not written.`);
  }
  return reasons;
}

async function fromConsumers(turn: Turn): Promise<string[]> {
  const report = await turn.world.consumers.look(turn.record.publications);
  return report.consumers
    .filter(({ holds }) => holds !== "new")
    .map(
      ({ kind, name, holds }) => `${kind} ${name} ${holds === "old" ? "still holds" : "may still hold"} the old value.`,
    );
}
