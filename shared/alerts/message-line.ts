import type { Urgency } from "./items.ts";

/** The lines of alert messages, and the texts that all channels share. */

/** A link of a line, or the main link of a message. */
export interface MessageLink {
  text: string;
  url: string;
}

/** One line of a message: the item, its state, facts, and links. */
export interface MessageLine {
  urgency: Urgency;
  /** The urgency as text. For an item that expires, it says how much time is left: `Within 7 days`. */
  label: string;
  title: string;
  /** The state, as the predicate of the title: `expires in 6 days`. */
  what: string;
  /** Facts about the item, such as its type and expiry, as label and value pairs in display order. */
  facts: [label: string, value: string][];
  /** A command of the Azure CLI that fixes the problem. */
  command?: string;
  /** Links to the service's page about the item, then to the Azure portal. Empty if neither is known. */
  links: MessageLink[];
  location?: ItemLocation;
}

/** The owner and location of an item, for grouping in messages. */
export interface ItemLocation {
  /** The value of the owner tag. Empty if there is none. */
  owner: string;
  vault?: string;
  /** Name of the vault's subscription, or its ID if the name is unknown. */
  subscription?: string;
  /** The page of the vault's assets, of the application or of the tenant. Without a public URL, the vault in the Azure portal. */
  url?: string;
  /** The page on which users assign an owner. Only without an owner, and with a public URL. */
  assignOwner?: string;
  /**
   * The application or tenant of a credential, which is in no vault, such as "Application Shop, Microsoft Entra ID" or
   * "B2C tenant acme.onmicrosoft.com".
   */
  directory?: string;
}

/** Shown in place of an owner that is not known. */
export const NO_OWNER = "No owner";

/** Text of the link to the page on which users assign an owner. */
export const ASSIGN_OWNER = "Assign an owner";

/** Returns a text of at most `maxLength` characters. A longer one ends with an ellipsis. */
export const truncate = (text: string, maxLength: number): string =>
  (text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text).toWellFormed();
