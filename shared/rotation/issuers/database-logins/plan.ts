import { Problem } from "../../../platform/http/problem.ts";
import { DAY_MS } from "../../../platform/time.ts";
import { engineOfServer } from "../../database-logins/engines.ts";
import { loginUnclear } from "../../database-logins/login-servers.ts";
import { type ComparedLogin, type DatabaseLogin, problemOf } from "../../database-logins/registrations.ts";
import type { OnObstacle } from "../../obstacles.ts";
import { type PlanDependencies, planMatchPlaces } from "../../plan-places.ts";
import { placeOf } from "../../publications.ts";
import type { DatabaseLoginRequest, PlanRequest, PlanWithoutConsumers } from "../../request.ts";

/**
 * Plans the rotation of a login: all registered secrets get the other user. The user in use follows only from the values of the
 * secrets, which are read in this run, and whose password must sign in.
 *
 * @throws {Problem} if no plan is possible; {CloudFailure}
 */
export async function planDatabaseLogin(
  deps: PlanDependencies,
  request: PlanRequest<DatabaseLoginRequest>,
  now: Date,
  onObstacle: OnObstacle,
): Promise<PlanWithoutConsumers> {
  const { loginId, expiryDays, overlapDays, reason } = request;
  const login = await deps.logins.get(loginId);
  const { serverId, database, users, signInAs } = login;
  if (!(await deps.logins.isMonitored(serverId)))
    throw new Problem("notRotatable", "The server is in a subscription that the service does not monitor.");
  const compared = await deps.logins.comparePlaces(login);
  const oldUser = userInUse(compared);
  await requireWorkingPair(deps, login, compared);
  const { publications, notUpdated } = await planMatchPlaces(
    deps,
    compared,
    { reason, automatic: request.automatic },
    onObstacle,
  );
  return {
    loginId,
    login: { database, users, signInAs },
    resourceId: serverId,
    keyKind: engineOfServer(serverId).name,
    oldKeyId: oldUser,
    expiryDays,
    newExpiresAt: new Date(now.getTime() + expiryDays * DAY_MS).toISOString(),
    overlapDays,
    updateKeyVaults: true,
    reason,
    knownKeyIds: [],
    publications,
    skipVerification: request.skipVerification,
    restartApps: request.restartApps,
    notUpdated,
    notes: [],
  };
}

/**
 * Returns the user that all secrets name.
 *
 * @throws {Problem} notRotatable if a secret can't be rotated, or if the secrets name different users.
 */
function userInUse(compared: readonly ComparedLogin[]): string {
  const problems = compared.flatMap((one) => problemOf(one) ?? []);
  if (problems.length > 0) throw new Problem("notRotatable", problems.join(" "));
  const names = [...new Set(compared.flatMap(({ login }) => login?.user ?? []))];
  if (names.length === 1) return names[0]!;
  const texts = names.map((name) => {
    const places = compared.filter(({ login }) => login?.user === name).map(placeOf);
    return `${places.join(", ")} ${places.length === 1 ? "names" : "name"} ${name}`;
  });
  throw new Problem(
    "notRotatable",
    `Both users are in use: ${texts.join("; ")}. A rotation changes the password of one of them, so it would cause an outage. Write the same login to all these vault secrets first.`,
  );
}

/**
 * Every stored password must sign in, the service's identity must be able to set both passwords, and both users must have the
 * same rights.
 *
 * @throws {Problem} notRotatable otherwise; {CloudFailure} if the server gives no clear answer.
 */
async function requireWorkingPair(
  { loginServers }: PlanDependencies,
  login: DatabaseLogin,
  compared: readonly ComparedLogin[],
): Promise<void> {
  const fail = (text: string): never => {
    throw new Problem("notRotatable", text);
  };
  const missing = await loginServers.missing(login);
  if (missing.length > 0) fail(missing.join(" "));
  for (const place of compared) {
    const { user, password } = place.login!;
    const result = await loginServers.signIn(login, user, password);
    if (result === "unclear") throw loginUnclear(login, user);
    if (result === "rejected")
      fail(
        `The server rejected the password of ${user} that ${placeOf(place)} stores. Write a login that works first.`,
      );
  }
  const { user, password } = compared[0]!.login!;
  const differences = await loginServers.differences(login, user, password);
  if (differences.length > 0) fail(`The two users have different rights. ${differences.join(" ")}`);
}
