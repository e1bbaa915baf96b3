/** The name of the product, the same in documents, messages, authenticator apps and the API description. */
export const PRODUCT = "Credential and Secret Lifecycle Service";
