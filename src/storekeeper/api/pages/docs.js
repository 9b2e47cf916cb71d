// Shows the document of this very service. No validator badge: it would ask another host. Nothing can be executed
// before "Try it out" was pressed: the stores are real, and none can be deleted. No colours: with them, 20,000 stores
// stop the browser for minutes.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  tryItOutEnabled: false,
  syntaxHighlight: false,
  validatorUrl: null,
});
