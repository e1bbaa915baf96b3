// Where secrets are in Azure DevOps.

/** A variable of a variable group. */
export interface VariablePlace {
  projectId: string;
  groupId: number;
  /** Name of the variable. Names are not case-sensitive in DevOps. */
  variable: string;
}

/** A service connection of a project. */
export interface ConnectionPlace {
  projectId: string;
  connectionId: string;
}

/** The application whose client secret is replaced. The IDs are in lower case. */
export interface ReplacedCredential {
  appId: string;
  tenantId: string;
}
