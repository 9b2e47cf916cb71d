"""The contract as Django REST framework would have it: a serializer and one view set."""

from typing import Any, ClassVar

from rest_framework import exceptions, renderers, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler

from stores.models import Store

REQUIRED, NOT_TEXT = "is required", "must be a string"
TOO_LONG = "length must be less than or equal to {max_length} characters long"


class ContractRenderer(renderers.JSONRenderer):
    charset = "utf-8"


class Text(serializers.CharField):
    """A string as sent: DRF's own field also takes numbers and trims."""

    default_error_messages: ClassVar = {
        "required": REQUIRED,
        "blank": REQUIRED,
        "null": NOT_TEXT,
        "invalid": NOT_TEXT,
    }

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StoreSerializer(serializers.ModelSerializer):
    name = Text(max_length=30, trim_whitespace=False, error_messages={"max_length": TOO_LONG})
    address = Text(required=False, default=None, allow_blank=True, trim_whitespace=False)

    class Meta:
        model = Store
        fields = ("id", "name", "address")


class StoreViewSet(viewsets.ModelViewSet):
    renderer_classes = (ContractRenderer,)
    queryset = Store.objects.order_by("id")
    serializer_class = StoreSerializer
    lookup_value_regex = "[0-9]+"

    def filter_queryset(self, queryset: Any) -> Any:
        name = self.request.query_params.get("name")
        return queryset.filter(name=name) if name and self.action == "list" else queryset

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response = super().create(request, *args, **kwargs)
        response.status_code = 200
        return response

    def finalize_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(*args, **kwargs)
        response["Cache-Control"] = "no-cache"
        return response


def contract_error(error: Exception, context: dict[str, Any]) -> Response | None:
    response = exception_handler(error, context)
    if response is None:
        return None
    body: dict[str, Any] = {"statusCode": response.status_code, "error": response.status_text}
    if isinstance(error, exceptions.ValidationError):
        keys = [key for key in response.data if key != "non_field_errors"]
        texts = [f'"{key}" {response.data[key][0]}' for key in keys]
        body["message"] = ". ".join(texts) or '"value" must be of type object'
        body["validation"] = {"source": "payload", "keys": keys}
    elif isinstance(error, exceptions.ParseError):
        body["message"] = "Invalid request payload JSON format"
    else:
        body["message"] = f"Store {context['kwargs']['pk']} not found"
    response.data = body
    return response
