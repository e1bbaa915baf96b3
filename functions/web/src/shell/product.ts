/** The name of the product, as in the API description and in documents. `index.html` has it too. */
export const PRODUCT = "Credential and Secret Lifecycle Service";
