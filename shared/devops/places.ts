/** A variable of a variable group. */
export interface VariablePlace {
  projectId: string;
  groupId: number;
  /** DevOps makes no difference between upper and lower case. */
  variable: string;
}

export interface ConnectionPlace {
  projectId: string;
  connectionId: string;
}

/** The application whose client secret is replaced. Lower case. */
export interface ReplacedCredential {
  appId: string;
  tenantId: string;
}
