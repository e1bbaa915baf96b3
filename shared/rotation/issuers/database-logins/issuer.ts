import { ENGINES } from "../../database-logins/engines.ts";
import type { DatabaseLoginRequest } from "../../request.ts";
import type { Issuer, IssuerPermission } from "../issuer.ts";
import { setNewPassword } from "./create.ts";
import { planDatabaseLogin } from "./plan.ts";
import { proveLogin, readPassword, testValue, valueFor } from "./prove.ts";
import { keepNewPassword } from "./restore.ts";
import { findTargets, isOldKept, reasonsToKeepOld, retireOldUser } from "./retire.ts";
import { tagsOf } from "./tags.ts";
import { attentionTexts, planTexts, resultTexts } from "./texts.ts";

/** Logins of databases: two users with the same rights alternate. A rotation gives the one that is not in use a new password. */
export const databaseLogins: Issuer = {
  kind: "databaseLogin",
  title: "Login of a database",
  noun: "login",
  canHoldTwo: true,
  regenerates: true,
  permissions: ENGINES.flatMap(({ title, actions }) => [
    ...actions.map(
      (name): IssuerPermission => ({
        name,
        purpose: `Read the address of the server of a ${title} (Azure Resource Manager). Only for servers of this kind.`,
        optional: true,
      }),
    ),
    {
      name: `${title}: CREATEROLE and ADMIN OPTION on both users`,
      purpose: "Set the password of the user that is not in use (on the server, as the service's Entra identity).",
      optional: true,
    },
  ]),
  subjectOf: ({ loginId }: DatabaseLoginRequest) => loginId,
  plan: planDatabaseLogin,
  create: setNewPassword,
  prove: proveLogin,
  readValue: readPassword,
  testValue,
  valueFor,
  tagsOf,
  findTargets,
  reasonsToKeepOld,
  retire: retireOldUser,
  isOldKept,
  restore: keepNewPassword,
  recordPlaces: ({ deps, record, now }) => deps.logins.recordWrittenPlaces(record, now()),
  planTexts,
  resultTexts,
  attentionTexts,
};
