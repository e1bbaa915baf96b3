/**
 * Permissions of the signed-in user. The build generates `OPERATIONS` from the declarations of the API. The API enforces the
 * permissions, and the page only hides controls.
 */
import { createContext, useContext } from "react";
import { OPERATIONS } from "./operations.ts";

export type Operation = keyof typeof OPERATIONS;
export type Role = (typeof OPERATIONS)[Operation]["roles"][number];

/** The signed-in user. */
export interface Person {
  username: string;
  role: Role;
  /** The licensed tier. */
  tier: "core" | "pro";
}

/** Set by `SignedIn`, which wraps all views. */
export const PersonContext = createContext<Person | undefined>(undefined);

/** Returns the signed-in user. */
export function useCurrentUser(): Person {
  const person = useContext(PersonContext);
  if (!person) throw new Error("useCurrentUser must be called below PersonContext.");
  return person;
}

/** Returns the roles and the license tier that an operation requires. */
export const requirementsOf = (operation: Operation): { roles: readonly Role[]; tier: Person["tier"] } =>
  OPERATIONS[operation];

/** Returns a function that tells whether the user's role and the license allow an operation. */
export function useMay(): (operation: Operation) => boolean {
  const { tier } = useCurrentUser();
  const roleAllows = useRoleAllows();
  return (operation) => roleAllows(operation) && (requirementsOf(operation).tier === "core" || tier === "pro");
}

/** Returns a function that tells whether the user's role allows an operation, regardless of the license. */
export function useRoleAllows(): (operation: Operation) => boolean {
  const { role } = useCurrentUser();
  return (operation) => requirementsOf(operation).roles.includes(role);
}
