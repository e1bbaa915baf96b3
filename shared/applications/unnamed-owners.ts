import type { GraphApplication } from "../platform/azure/graph.ts";
import type { Owner } from "./application.ts";

// Owners of whom Microsoft Graph returns only the ID, because the service's identity may not read objects of their type.

/**
 * Application permissions with which Microsoft Graph returns the names and addresses of owners who are users. One is enough.
 * Without them, all members of a user but its ID are null:
 * https://learn.microsoft.com/graph/permissions-overview#limited-information-returned-for-inaccessible-member-objects
 */
export const READ_USERS = [
  "User.ReadBasic.All",
  "User.Read.All",
  "User.ReadWrite.All",
  "Directory.Read.All",
  "Directory.ReadWrite.All",
] as const;

/** Returns whether Microsoft Graph returned neither a name nor an address. */
export const hasNoName = ({ displayName, userPrincipalName, mail }: Omit<Owner, "id">): boolean =>
  displayName === undefined && userPrincipalName === undefined && mail === undefined;

/** Returns the number of different owners without a name. */
export const countUnnamedOwners = (applications: readonly GraphApplication[]): number =>
  new Set(applications.flatMap(({ owners = [] }) => owners.filter(hasNoName).map(({ id }) => id))).size;
