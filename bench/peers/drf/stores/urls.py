"""The routes of the contract."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from stores.views import StoreViewSet


def alive(_: HttpRequest) -> HttpResponse:
    headers = {"Cache-Control": "no-cache"}
    return HttpResponse("OK", content_type="text/plain; charset=utf-8", headers=headers)


urlpatterns = [
    path("test", alive),
    path("api/stores", StoreViewSet.as_view({"get": "list", "post": "create"})),
    path("api/stores/<int:pk>", StoreViewSet.as_view({"get": "retrieve", "put": "update"})),
]
