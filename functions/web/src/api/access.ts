/** What the person who is signed in may do, by the declarations of the API. Whoever asks all the same is refused there. */
import { createContext, useContext } from "react";
import { OPERATIONS } from "./operations.ts";

export type Operation = keyof typeof OPERATIONS;
export type Role = (typeof OPERATIONS)[Operation]["roles"][number];

export interface Person {
  username: string;
  role: Role;
  /** The tier that is licensed. */
  tier: "core" | "pro";
}

export const PersonContext = createContext<Person | undefined>(undefined);

export function usePerson(): Person {
  const person = useContext(PersonContext);
  if (!person) throw new Error("Nobody is signed in here.");
  return person;
}

/** Who may call an operation, and under which licence. */
export const whoMay = (operation: Operation): { roles: readonly Role[]; tier: Person["tier"] } => OPERATIONS[operation];

/** Whether the caller's role and the licence allow this operation. */
export function useMay(): (operation: Operation) => boolean {
  const { tier } = usePerson();
  const roleMay = useRoleMay();
  return (operation) => roleMay(operation) && (whoMay(operation).tier === "core" || tier === "pro");
}

/** Whether the caller's role allows this operation, whatever the licence. */
export function useRoleMay(): (operation: Operation) => boolean {
  const { role } = usePerson();
  return (operation) => whoMay(operation).roles.includes(role);
}
