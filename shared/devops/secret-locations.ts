// The locations in Azure DevOps that store secrets, and the credential of which they can store a copy.

/** A variable of a variable group that stores a secret. */
export interface VariableLocation {
  projectId: string;
  groupId: number;
  /** Name of the variable. Names are not case-sensitive in DevOps. */
  variable: string;
}

/** A service connection of a project that signs in with a secret. */
export interface ConnectionLocation {
  projectId: string;
  connectionId: string;
}

/** Names the application whose client secret a rotation replaces. The IDs are in lower case. */
export interface ReplacedCredential {
  appId: string;
  tenantId: string;
}
