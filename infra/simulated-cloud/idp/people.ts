/** A person of the company in the identity provider. OIDC sends the members as claims, SAML as attributes. */
export interface Person {
  /** Identifier that the sign-in page sends. */
  id: string;
  name: string;
  email: string;
  /** Whether the provider has verified the mail address. */
  emailVerified: boolean;
  groups: readonly string[];
  /** Values of app roles, as in Entra. */
  roles: readonly string[];
  /** A constant GUID: `sub` and `oid` in OIDC, the persistent NameID and `objectidentifier` in SAML. */
  objectId: string;
}

/** The people at the start. */
const STAFF: readonly Person[] = [
  person(1, "ada", "Ada Lindqvist", ["platform", "everyone"], ["Lifecycle.Admin"]),
  person(2, "bruno", "Bruno Keller", ["audit", "everyone"], ["Lifecycle.Auditor"]),
  person(3, "olga", "Olga Petrova", ["operations", "everyone"], ["Lifecycle.Operator"]),
  person(4, "uma", "Uma Okafor", ["everyone"], ["Lifecycle.User"]),
  person(5, "zoe", "Zoë O'Neill", ["everyone"], []),
  // Auditor and operator are mutually exclusive.
  person(6, "berta", "Berta Moreau", ["audit", "operations", "everyone"], ["Lifecycle.Auditor", "Lifecycle.Operator"]),
  { ...person(7, "nils", "Nils Haugen", ["everyone"], ["Lifecycle.User"]), emailVerified: false },
  { ...person(8, "fritz", "Fritz Brandt", ["guests"], ["Lifecycle.User"]), email: "fritz@partner.example" },
];

function person(number: number, id: string, name: string, groups: string[], roles: string[]): Person {
  const objectId = `0a11ce00-0000-4000-8000-${String(number).padStart(12, "0")}`;
  return { id, name, email: `${id}@acme.example`, emailVerified: true, groups, roles, objectId };
}

/** Stores the people who can sign in, in memory. */
export class People {
  readonly #people = new Map(STAFF.map((one) => [one.id, one]));

  list(): Person[] {
    return [...this.#people.values()];
  }

  find(id: string): Person | undefined {
    return this.#people.get(id);
  }

  withObjectId(objectId: string): Person | undefined {
    return this.list().find((one) => one.objectId === objectId);
  }

  /** Changes a person. Returns false if the ID is unknown. */
  change(id: string, change: Partial<Omit<Person, "id">>): boolean {
    const previous = this.#people.get(id);
    if (previous === undefined) return false;
    this.#people.set(id, { ...previous, ...change });
    return true;
  }
}
