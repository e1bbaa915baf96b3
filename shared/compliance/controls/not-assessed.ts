import type { FrameworkId } from "./frameworks.ts";

/**
 * Requirements of frameworks about credentials and cryptography that this service can't see. A control that also has checks is assessed
 * only in part: the checks can fail it, but can't show that it is met.
 */
export interface NotAssessed {
  framework: FrameworkId;
  control: string;
  /** The requirement, and why the service can't see it. */
  reason: string;
}

export const NOT_ASSESSED: readonly NotAssessed[] = [
  {
    framework: "owasp-nhi-2025",
    control: "NHI1",
    reason: "Identities without a credential that the service lists, such as managed identities, are not seen.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI2",
    reason: "Source code, chats and build logs, in which secrets leak, are not read.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI3",
    reason: "Extensions and services of third parties, and the rights that they have, are not read.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI5",
    reason: "The roles of identities are not compared with what the identities do.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI6",
    reason: "The definitions of pipelines, and the conditions of federated credentials, are not checked.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI8",
    reason: "The service does not know which environments an identity may be used in.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI9",
    reason: "The service lists the consumers of a secret, but can't tell whether they may share it.",
  },
  {
    framework: "owasp-nhi-2025",
    control: "NHI10",
    reason: "Logs don't say whether a person or a program used the credential of an application.",
  },
  {
    framework: "nis2",
    control: "21(2)(h)",
    reason: "Written policies and procedures are documents, which a person must review.",
  },
  {
    framework: "nis2",
    control: "21(2)(j)",
    reason: "The sign-in methods of people, and emergency communication, are outside of the inventory.",
  },
  {
    framework: "nis2",
    control: "Annex 9.2(a)",
    reason: "The classification of the assets that a key protects is not known.",
  },
  {
    framework: "nis2",
    control: "Annex 9.2(c)",
    reason: "How keys are distributed, archived, destroyed, and handled after a compromise is not seen.",
  },
  {
    framework: "nis2",
    control: "Annex 9.3",
    reason: "Reviews of the policy on cryptography are not recorded in Azure.",
  },
  {
    framework: "nis2",
    control: "Annex 11.2",
    reason: "Role assignments are not reviewed, and the service does not know who needs which right.",
  },
  {
    framework: "dora",
    control: "9(4)(d)",
    reason: "The classification of data and the risk assessment, by which keys must be protected, are not known.",
  },
  {
    framework: "dora",
    control: "RTS 6",
    reason: "Whether data at rest, in transit and in use is encrypted is not seen.",
  },
  {
    framework: "dora",
    control: "RTS 7(3)",
    reason: "The service does not know which keys were lost, compromised or damaged.",
  },
  {
    framework: "dora",
    control: "RTS 7(4)",
    reason:
      "The inventory can be this register for certificates in watched vaults and of applications. Other certificates, and which functions are critical, are not known.",
  },
  {
    framework: "dora",
    control: "RTS 12",
    reason: "How long logs are retained, and how they are protected, is not read.",
  },
  {
    framework: "dora",
    control: "RTS 20",
    reason: "The lifecycle of the accounts of people is outside of the inventory.",
  },
  {
    framework: "dora",
    control: "RTS 21",
    reason: "Whether access rights are needed, approved and reviewed is not seen.",
  },
  {
    framework: "bsi-c5-2020",
    control: "CRY-01",
    reason: "Written policies and instructions are documents, which a person must review.",
  },
  {
    framework: "bsi-c5-2020",
    control: "CRY-02",
    reason: "The protocols and cipher suites of connections are not read.",
  },
  {
    framework: "bsi-c5-2020",
    control: "CRY-03",
    reason: "Whether stored data is encrypted, and whether only the customer has the key, is not seen.",
  },
  {
    framework: "bsi-c5-2020",
    control: "CRY-04",
    reason: "How keys are generated outside of key vaults, and handled after a compromise, is not seen.",
  },
  {
    framework: "bsi-c5-2020",
    control: "IDM-08",
    reason: "How secrets reach the people who use them, and who confirms to keep them confidential, is not seen.",
  },
  {
    framework: "bsi-c5-2020",
    control: "IDM-09",
    reason: "The sign-in methods of people are outside of the inventory.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.308(a)(1)(ii)(D)",
    reason: "Whether a person regularly reviews records of activity is not seen.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.312(a)(1)",
    reason: "The service does not know which people may have access to health information.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.312(a)(2)(i)",
    reason: "The accounts of people are outside of the inventory.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.312(a)(2)(iv)",
    reason: "Which data is health information, and whether it is encrypted, is not seen.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.312(c)(1)",
    reason: "Changes of health information are not seen.",
  },
  {
    framework: "hipaa-security-rule",
    control: "164.312(e)(2)(ii)",
    reason: "Connections that transmit health information, and their encryption, are not seen.",
  },
];
